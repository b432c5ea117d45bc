#!/usr/bin/python3
"""Checks that every message, enum, field, service and method of .proto files has a comment.

usage: proto_comments.py FILE...

A comment stands on the lines right above, or at the end of the line. Enum values need none, and
neither does a oneof (its fields do). A request's or an answer's message may share the method's.
"""
import re
import sys

COMMENT = re.compile(r"//.*$")
BLOCK = re.compile(r"^(message|enum|oneof|service|extend)\s+(\w+)\s*\{")
METHOD = re.compile(r"^rpc\s+(\w+)\s*\(")
FIELD = re.compile(r"^(?:(?:repeated|optional)\s+)?(?:map\s*<[^>]*>|[\w.]+)\s+(\w+)\s*=\s*\d+")
SKIPPED = re.compile(r"^(syntax|package|import|option|reserved|returns|\}|\{|;|$)")


def check(text):
    """[(line, kind, name)] of what has no comment."""
    missing, blocks, commented, wrapped = [], [], False, False
    for number, line in enumerate(text.split("\n"), 1):
        has_comment = COMMENT.search(line) is not None
        code = COMMENT.sub("", line).strip()
        if not code:
            commented = has_comment  # a blank line parts a comment from what follows
            continue
        documented = commented or has_comment
        inside = blocks[-1] if blocks else None
        kind = name = None
        if not wrapped:
            block, method = BLOCK.match(code), METHOD.match(code)
            if block:
                kind, name = block.groups()
            elif method:
                kind, name = "method", method.group(1)
            elif inside in ("message", "oneof", "extend") and not SKIPPED.match(code):
                field = FIELD.match(code)
                if field:
                    kind, name = "field", field.group(1)
        if kind and kind != "oneof" and not documented:
            missing.append((number, kind, name))
        for character in re.sub(r'"[^"]*"', "", code):
            if character == "{":
                blocks.append(kind or "option")
            elif character == "}" and blocks:
                blocks.pop()
        # A statement that goes on: its next lines are no statements of their own.
        wrapped = code[-1] not in ";{}"
        if not wrapped:
            commented = False
    return missing


def main():
    count = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            for number, kind, name in check(file.read()):
                print("%s:%d: %s %s has no comment" % (path, number, kind, name))
                count += 1
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
