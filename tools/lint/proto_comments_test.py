#!/usr/bin/python3
"""Tests proto_comments.py."""
import unittest

import proto_comments

GOOD = """syntax = "proto3";
package a;
import "x.proto";

// A message.
message M {
  // A field.
  int32 a = 1;
  repeated string b = 2;  // At the end of the line.
  // A map.
  map<string, int32> c = 3;
  oneof kind {
    // One.
    M one = 4 [deprecated = true];
  }
  reserved 5, 6;
  // Inner.
  enum E {
    E_UNSPECIFIED = 0;
    E_ONE = 1;
  }
  // Goes on
  // for two lines.
  optional very.long.name.Of
      d = 7;
}

// A service.
service S {
  // A method.
  rpc Get(M) returns (M);
  // Another.
  rpc Watch(M)
      returns (stream M);
  // With options.
  rpc List(M) returns (M) {
    option deprecated = true;
  }
}
"""


class ProtoCommentsTest(unittest.TestCase):
    def names(self, text):
        return [name for _, _, name in proto_comments.check(text)]

    def test_good(self):
        self.assertEqual(self.names(GOOD), [])

    def test_each_comment_is_needed(self):
        lines = GOOD.split("\n")
        for number, line in enumerate(lines):
            if not line.strip().startswith("//") or lines[number + 1].strip().startswith("//"):
                continue
            if lines[number - 1].strip().startswith("//"):
                continue  # the first of two lines still documents
            with self.subTest(line):
                self.assertEqual(len(self.names("\n".join(lines[:number] + lines[number + 1 :]))), 1)
        self.assertEqual(self.names(GOOD.replace("  // At the end of the line.", "")), ["b"])

    def test_a_blank_line_parts(self):
        self.assertEqual(self.names("// About something else.\n\nmessage M {}\n"), ["M"])

    def test_a_comment_serves_one_field(self):
        self.assertEqual(self.names("// M.\nmessage M {\n  // A.\n  int32 a = 1;\n  int32 b = 2;\n}\n"), ["b"])


if __name__ == "__main__":
    unittest.main()
