#!/usr/bin/python3
"""Tests what bazel_summary.py counts."""
import os
import tempfile
import unittest

import bazel_summary

GTEST = """<testsuites><testsuite name="S">
<testcase name="Good" status="run" result="completed" classname="S"/>
<testcase name="Skipped" status="run" result="skipped" classname="S"><skipped message=""/></testcase>
<testcase name="DISABLED_Off" status="notrun" result="suppressed" classname="S"/>
%s
</testsuite></testsuites>"""
FAILED_CASE = '<testcase name="Bad" status="run" classname="S"><failure message="x"/></testcase>'
SCRIPT = '<testsuites><testsuite name="t"><testcase name="t" status="run"/></testsuite></testsuites>'
CRASH = '<testsuites><testsuite name="t"><testcase name="t" status="run"><error message="exited with error code 139"/></testcase></testsuite></testsuites>'


class SummaryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.count = 0

    def result(self, label, xml, status="PASSED", attempt=1):
        outputs = []
        if xml is not None:
            self.count += 1
            path = os.path.join(self.folder.name, "a b%d.xml" % self.count)
            with open(path, "w", encoding="ascii") as file:
                file.write(xml)
            outputs = [{"name": "test.xml", "uri": "file://" + path.replace(" ", "%20")}]
        identity = {"label": label, "run": 1, "shard": 1, "attempt": attempt}
        return {"id": {"testResult": identity}, "testResult": {"status": status, "testActionOutput": outputs}}

    def check(self, events, passed, failed, skipped, exit_code=0):
        found = bazel_summary.summarize(events, exit_code)
        self.assertEqual((found[0], len(found[2]), found[1]), (passed, failed, skipped), found[2])
        return found[2]

    def test_counts_cases(self):
        self.check([self.result("//a:t", GTEST % ""), self.result("//b:t", SCRIPT)], 2, 0, 2)

    def test_failed_case_is_counted_once(self):
        failures = self.check([self.result("//a:t", GTEST % FAILED_CASE, "FAILED")], 1, 1, 2, 3)
        self.assertEqual(failures, ["//a:t S.Bad"])

    def test_crash(self):
        self.check([self.result("//a:t", CRASH, "FAILED")], 0, 1, 0, 3)

    def test_time_out_without_output(self):
        self.assertEqual(self.check([self.result("//a:t", None, "TIMEOUT")], 0, 1, 0, 3), ["//a:t: timeout"])

    def test_all_cases_passed_but_the_process_failed(self):
        self.check([self.result("//a:t", GTEST % "", "FAILED")], 1, 1, 2, 3)

    def test_no_case_ran(self):
        self.check([self.result("//a:t", "<testsuites/>")], 0, 1, 0)

    def test_last_attempt_counts(self):
        self.check([self.result("//a:t", CRASH, "FAILED"), self.result("//a:t", SCRIPT, "PASSED", 2)], 1, 0, 0)

    def test_unbuilt_target(self):
        unbuilt = {"id": {"targetCompleted": {"label": "//a:t"}}, "completed": {}}
        skipped = {"id": {"targetCompleted": {"label": "//a:u"}}, "aborted": {"reason": "SKIPPED"}}
        self.check([unbuilt, skipped, self.result("//b:t", SCRIPT)], 1, 1, 0, 1)

    def test_bazel_failed_before_any_test(self):
        self.check([], 0, 1, 0, 1)
        self.assertEqual(list(bazel_summary.read_events(self.folder.name + "/none")), [])


if __name__ == "__main__":
    unittest.main()
