#!/usr/bin/python3
"""Writes a C++ source that returns a file's bytes: embed_descriptor.py INPUT OUTPUT."""
import sys

data = open(sys.argv[1], "rb").read()
with open(sys.argv[2], "w") as out:
    out.write('#include "cli/spec_descriptor.h"\n\nnamespace tessera {\nnamespace {\n')
    out.write("constexpr unsigned char kBytes[] = {%s};\n}\n" % ",".join(map(str, data)))
    out.write("std::string SpecDescriptorSet() { return std::string(kBytes, kBytes + sizeof(kBytes)); }\n}\n")
