#!/usr/bin/python3
"""Checks every #include of the tree against rules.py, and the names of folders.

usage: check_includes.py [ROOT]     ROOT defaults to the tree that holds this file
Prints one line per violation, FILE:LINE: what and which rule, and exits 1 if there is one.
"""
import fnmatch
import os
import re
import sys

import rules

SOURCE_ENDINGS = (".h", ".cc", ".cu", ".cuh", ".inc", ".hpp", ".cpp", ".c")
INCLUDE = re.compile(r"^\s*#\s*(?:include|include_next|import)\b\s*(.*)$")
INCLUDED = re.compile(r'^(?:"([^"]+)"|<([^>]+)>)')
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b(.*)$")
ABOUT_CUDA = re.compile(r"cuda|nvcc|cublas|nccl|\bgpu", re.IGNORECASE)
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def source_files(root):
    """Paths of sources below the top folders, relative to root. Nothing generated: bazel's folders
    are links, and hidden ones are skipped."""
    for top in sorted(os.listdir(root)):
        if top.startswith(("bazel-", ".")) or not os.path.isdir(os.path.join(root, top)):
            continue
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = sorted(s for s in subfolders if not s.startswith((".", "__")))
            for name in sorted(names):
                if name.endswith(SOURCE_ENDINGS):
                    yield os.path.relpath(os.path.join(folder, name), root)


def unit_of(path):
    """The deepest folder with rules that holds the file; None if there is none."""
    folder = os.path.dirname(path)
    while folder and folder not in rules.ARROWS:
        folder = os.path.dirname(folder)
    return folder or None


def stem(path):
    """Without ending, and without _test: 'coordinator/jobs_service'."""
    return re.sub(r"_test$", "", os.path.splitext(path)[0])


def is_test(path):
    name = os.path.splitext(os.path.basename(path))[0]
    return (
        path.startswith("tests/")
        or name.endswith(("_test", "_testing", "_matchers"))
        or "conformance" in name
    )


def matches(path, pattern):
    if pattern in rules.KERNELS:  # files of the folder itself
        return os.path.dirname(path) == os.path.dirname(pattern)
    return fnmatch.fnmatchcase(path, pattern)


def own_folder(path, unit):
    """Whether path is in unit, and not in a deeper unit with rules of its own."""
    return path.startswith(unit + "/") and unit_of(path) == unit


def check_project_include(path, unit, included):
    """What is wrong with a file of the tree including another one; None if nothing."""
    if included.startswith("tests/"):
        return None if unit == "tests" else "nothing includes tests/"
    if included.endswith((".cc", ".cpp", ".c", ".cu")) and unit != "tests":
        return "a source file is compiled, not included"
    if included.endswith(".grpc.pb.h"):
        return check_grpc(path, unit)
    allowed = rules.ARROWS[unit]
    if is_test(path) and unit not in rules.PURE_UNITS:
        allowed += rules.TEST_ARROWS
    if own_folder(included, unit) or any(matches(included, pattern) for pattern in allowed):
        return None
    return "%s/ may not include %s/ (it may include: %s)" % (
        unit,
        unit_of(included) or os.path.dirname(included),
        ", ".join(rules.ARROWS[unit]) or "nothing but itself",
    )


def check_grpc(path, unit):
    if unit == "tests":
        return None
    if unit not in rules.GRPC_UNITS:
        return "%s/ may not include gRPC headers (only %s)" % (unit, ", ".join(rules.GRPC_UNITS))
    name = os.path.basename(stem(path)).split("_")[-1]
    if is_test(path) or name in rules.GRPC_FILE_ENDINGS or stem(path) in rules.GRPC_FILES:
        return None
    return "gRPC headers only in files named *_%s or listed in rules.py" % ", *_".join(
        rules.GRPC_FILE_ENDINGS
    )


def check_library(path, unit, library):
    _, units = rules.THIRD_PARTY[library]
    if is_test(path):
        return None
    for allowed in units:
        if unit == allowed:
            return check_grpc(path, unit) if library == "gRPC" else None
        if unit.startswith(allowed + "/") and allowed not in rules.OWN_FILES_ONLY.get(library, ()):
            return check_grpc(path, unit) if library == "gRPC" else None
    if library == "CUDA" and path.endswith((".cu", ".cuh")):
        return None
    return "%s is used only in %s" % (library, ", ".join(units) or "tests")


def library_of(included):
    for library, (pattern, _) in rules.THIRD_PARTY.items():
        if re.match(pattern, included):
            return library
    return None


def check_system_include(included):
    """A header in <> of no known library."""
    folder = included.split("/")[0] if "/" in included else None
    if folder in rules.PRIVATE_SYSTEM_FOLDERS:
        return "<%s> is private to the system's libraries" % included
    if folder is not None and folder not in rules.SYSTEM_FOLDERS:
        return "<%s> is of a library that rules.py does not list" % included
    return None


def check_include(path, unit, text):
    found = INCLUDED.match(text)
    if not found:
        return "computed #include"
    quoted, angled = found.groups()
    included = os.path.normpath(quoted or angled)
    top = included.split("/")[0]
    if quoted and included != quoted:
        return 'write the path as "%s"' % included
    if top in rules.TOP_FOLDERS and "/" in included:
        if angled:
            return "a file of the tree is included in quotes"
        return check_project_include(path, unit, included)
    library = library_of(included)
    if library:
        return check_library(path, unit, library)
    if quoted:
        return '"%s" is neither a path from the root nor of a listed library' % included
    return check_system_include(included)


def blank_comments(text):
    """Without block comments, lines kept."""
    return BLOCK_COMMENT.sub(lambda found: "\n" * found.group().count("\n"), text)


def check_file(root, path):
    """[(line, what is wrong)]."""
    unit = unit_of(path)
    if unit is None:
        return [(1, "folder %s has no rules in rules.py" % os.path.dirname(path))]
    violations = []
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = blank_comments(file.read())
    for number, line in enumerate(text.split("\n"), 1):
        include = INCLUDE.match(line)
        if include:
            message = check_include(path, unit, include.group(1).strip())
            if message:
                violations.append((number, message))
        condition = CONDITION.match(line)
        if (
            condition
            and ABOUT_CUDA.search(condition.group(1).split("//")[0])
            and not path.endswith(".cu")
            and not path.startswith(("tests/simt/", "tests/gpu/"))
            and not is_include_guard(line, path)
        ):
            violations.append((number, "preprocessor conditions about CUDA only inside .cu files"))
    return violations


def is_include_guard(line, path):
    """#ifndef TESSERA_KERNELS_CUDA_STREAM_H_ of kernels/cuda/stream.h."""
    guard = re.sub(r"[^A-Z0-9]", "_", path.upper())
    return re.match(r"^\s*#\s*ifndef\s+\w*%s_?\s*$" % re.escape(guard), line) is not None


def check_folders(root):
    """[(folder, what is wrong)]."""
    violations = []
    for top in sorted(os.listdir(root)):
        if top.startswith((".", "bazel-")) or not os.path.isdir(os.path.join(root, top)):
            continue
        if top not in rules.TOP_FOLDERS:
            violations.append((top, "top folders are " + " ".join(rules.TOP_FOLDERS)))
            continue
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = [s for s in subfolders if not s.startswith((".", "__"))]
            path = os.path.relpath(folder, root)
            levels = path.count("/")
            if os.path.basename(path) in rules.EMPTY_NAMES and top != "third_party":
                violations.append((path, "the name says nothing about what is in it"))
            if levels > rules.MAX_LEVELS and top not in rules.ANY_LEVELS and names:
                violations.append((path, "more than %d levels below %s/" % (rules.MAX_LEVELS, top)))
            if top == "worker" and levels == 1 and os.path.basename(path) not in rules.WORKER_FOLDERS:
                violations.append((path, "worker/ holds " + " ".join(rules.WORKER_FOLDERS)))
    return violations


def check_tree(root):
    """(lines that say what is wrong, number of files checked)."""
    lines = ["%s: %s" % violation for violation in check_folders(root)]
    count = 0
    for path in source_files(root):
        count += 1
        lines += ["%s:%d: %s" % (path, number, message) for number, message in check_file(root, path)]
    return lines, count


def main():
    here = os.path.dirname(os.path.realpath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))
    lines, count = check_tree(root)
    for line in lines:
        print(line)
    print("%d files checked, %d violations" % (count, len(lines)), file=sys.stderr)
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
