"""A function that libFuzzer calls, and a test that replays its corpus."""

def fuzz_target(name, deps, srcs = None):
    """NAME.cc defines LLVMFuzzerTestOneInput; NAME_corpus holds inputs, one a file.

    NAME_fuzz is the fuzzer, which only `./dev fuzz NAME` builds; NAME_corpus_test runs the corpus
    in every build, under the sanitizers too.
    """
    native.cc_library(
        name = name,
        testonly = True,
        srcs = (srcs or [name + ".cc"]) + ["check.h"],
        deps = deps,
        alwayslink = True,
    )
    native.cc_binary(
        name = name + "_fuzz",
        testonly = True,
        tags = ["manual"],  # links only with clang's -fsanitize=fuzzer
        deps = [":" + name],
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        srcs = ["corpus_test.cc"],
        args = ["tests/fuzz/%s_corpus" % name],
        data = native.glob(["%s_corpus/*" % name]),
        deps = [
            ":" + name,
            "//third_party:gtest",
        ],
    )
