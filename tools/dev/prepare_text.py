#!/usr/bin/python3
"""Splits the output of a command into a training and a validation text.

usage: prepare_text.py FOLDER NAME COMMAND [ARGUMENT...]

Writes FOLDER/NAME_train.txt and FOLDER/NAME_val.txt (the last tenth, cut where a line ends) and,
last, FOLDER/NAME.sizes. Does nothing if files of those sizes are there.
"""
import os
import subprocess
import sys

LEAST_BYTES = 1000


def write(path, data):
    """Under a temporary name first: a reader sees the whole file or none."""
    with open(path + ".partial", "wb") as file:
        file.write(data)
    os.replace(path + ".partial", path)


def split(text):
    """(training, validation)."""
    cut = text.rfind(b"\n", 0, len(text) * 9 // 10) + 1
    return text[:cut], text[cut:]


def is_ready(paths, sizes_path):
    try:
        with open(sizes_path, encoding="ascii") as file:
            expected = [int(word) for word in file.read().split()]
        return expected == [os.path.getsize(path) for path in paths]
    except (OSError, ValueError):
        return False


def main():
    folder, name, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    paths = [os.path.join(folder, name + suffix) for suffix in ("_train.txt", "_val.txt")]
    sizes_path = os.path.join(folder, name + ".sizes")
    if is_ready(paths, sizes_path):
        return
    try:
        text = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("error: %s" % error)
    parts = split(text)
    if len(text) < LEAST_BYTES or not all(parts):
        sys.exit("error: '%s' printed %d bytes; expected a text" % (" ".join(command), len(text)))
    os.makedirs(folder, exist_ok=True)
    for path, part in zip(paths, parts):
        write(path, part)
    write(sizes_path, b"%d %d\n" % tuple(map(len, parts)))
    print("wrote %s (%d bytes) and %s (%d bytes)" % (paths[0], len(parts[0]), paths[1], len(parts[1])), file=sys.stderr)


if __name__ == "__main__":
    main()
