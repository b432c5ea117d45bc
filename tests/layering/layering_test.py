#!/usr/bin/python3
"""The include rules hold in the tree that this test is built from."""
import os
import unittest

import check_includes


class LayeringTest(unittest.TestCase):
    def test_tree(self):
        # Bazel's copy of the data file links to the real tree; the sources are no inputs here.
        root = os.path.dirname(os.path.realpath("WORKSPACE"))
        lines, count = check_includes.check_tree(root)
        self.assertGreater(count, 10, "found hardly any source in " + root)
        self.assertEqual(lines, [], "\n" + "\n".join(lines))


if __name__ == "__main__":
    unittest.main()
