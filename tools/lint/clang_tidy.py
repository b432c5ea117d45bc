#!/usr/bin/python3
"""Runs clang-tidy over the files of compile_commands.json, several at a time.

usage: clang_tidy.py CACHE_FOLDER [FILE...]     all files but tests if none are named

Tests are left out: GoogleTest's macros, unrolled, keep the analyzer busy for half a minute a file,
and -Wall -Wextra -Werror and the sanitizers look at them anyway.

A clean result is remembered under a key made of the file, every file of the tree that it includes
(directly or not; for generated headers the .proto), its flags, .clang-tidy and the version of
clang-tidy, so that a second run only looks at what has changed. Run from the root of the tree,
where compile_commands.json is.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

CLANG_TIDY = "clang-tidy-16"
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
IMPORT = re.compile(rb'^\s*import\s*(?:public\s*)?"([^"]+)"', re.MULTILINE)
# Lines of its summary that say nothing.
NOISE = re.compile(r"^(\d+ warnings? (and \d+ errors? )?generated|Suppressed |Use -header-filter|\d+ warnings? treated as)")


class Tree:
    """Contents of files, and what they include."""

    def __init__(self):
        self._files = {}

    def read(self, path):
        """(content or None, paths that it includes)."""
        if path not in self._files:
            try:
                with open(path, "rb") as file:
                    content = file.read()
            except OSError:
                self._files[path] = (None, [])
            else:
                pattern = IMPORT if path.endswith(".proto") else INCLUDE
                names = [name.decode() for name in pattern.findall(content)]
                names = [re.sub(r"(\.grpc)?\.pb\.h$", ".proto", name) for name in names]
                self._files[path] = (content, names)
        return self._files[path]

    def closure(self, path):
        """The file and all files of the tree that it includes, sorted."""
        seen, todo = set(), [path]
        while todo:
            path = todo.pop()
            if path not in seen and self.read(path)[0] is not None:
                seen.add(path)
                todo += self.read(path)[1]
        return sorted(seen)


def is_test(path):
    return path.startswith("tests/") or path.endswith("_test.cc")


def version():
    return subprocess.run([CLANG_TIDY, "--version"], capture_output=True, check=True).stdout


def key(tree, command, common):
    digest = hashlib.sha256(common)
    digest.update("\0".join(command["arguments"]).encode())
    for path in tree.closure(command["file"]):
        digest.update(b"\0" + path.encode() + b"\0" + tree.read(path)[0])
    return digest.hexdigest()


def run(path):
    """(exit code, output)."""
    done = subprocess.run(
        [CLANG_TIDY, "--quiet", "--warnings-as-errors=*", "-p", ".", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if not NOISE.match(line)]
    return done.returncode, "\n".join(lines)


def main():
    cache, wanted = sys.argv[1], set(sys.argv[2:])
    os.makedirs(cache, exist_ok=True)
    with open("compile_commands.json", encoding="utf-8") as file:
        commands = [c for c in json.load(file) if c["file"] in wanted or not (wanted or is_test(c["file"]))]
    with open(".clang-tidy", "rb") as file:
        common = version() + file.read()
    tree = Tree()
    marks = {c["file"]: os.path.join(cache, key(tree, c, common)) for c in commands}
    todo = [path for path, mark in sorted(marks.items()) if not os.path.exists(mark)]
    print("clang-tidy: %d files, %d of them changed" % (len(marks), len(todo)), file=sys.stderr)
    failed = 0
    workers = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for path, (code, output) in zip(todo, pool.map(run, todo)):
            if code == 0:
                open(marks[path], "w", encoding="ascii").close()
                continue
            failed += 1
            print("%s:\n%s" % (path, output), flush=True)
    # Marks of files as they no longer are.
    for name in set(os.listdir(cache)) - {os.path.basename(mark) for mark in marks.values()}:
        if not wanted:
            os.unlink(os.path.join(cache, name))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
