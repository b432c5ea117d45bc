"""Every committed step is a point from which a job goes on, whatever was killed."""
import filecmp
import os
import random
import unittest

from tests.e2e import cluster as e2e

IS_LONG = bool(os.environ.get("TESSERA_LONG_TESTS"))
# Times that all processes are killed at once.
KILLS = 200 if IS_LONG else 5

JOB = e2e.SMALL_JOB + """
precision: bf16
offload: {{optimizer: {{tier: nvme}}, parameters: {{tier: nvme}}, buffers: 3, buffer_bytes: 65536}}
"""


class RecoveryTest(unittest.TestCase):
    def setUp(self):
        self.cluster = e2e.Cluster(workers=2, worker_flags=["--host-memory=64MiB"])
        e2e.write_text(self.cluster)
        self.random = random.Random(7)

    def tearDown(self):
        self.cluster.stop()

    def create(self, name, steps):
        self.cluster.create(name, JOB.format(steps=steps, dp=2) + "export: {path: %s}\n" % name)

    def curve(self, name):
        progress = self.cluster.job(name)["status"]["progress"]
        return {point["step"]: point["loss"] for point in progress["lossCurve"]}

    def export(self, name):
        return e2e.exported(self.cluster, name)

    def assert_same_training(self, one, other):
        """Every byte of the final weights, and every loss that was told: what nobody had written
        down of the newest steps' reports when everything was killed is not told again."""
        first, second = self.curve(one), self.curve(other)
        self.assertGreater(len(second), len(first) * 0.7)
        self.assertEqual({step: first[step] for step in second}, second)
        self.assertTrue(filecmp.cmp(self.export(one), self.export(other), shallow=False))

    def kill_all(self):
        daemons = list(self.cluster.workers.values()) + [self.cluster.coordinator]
        self.random.shuffle(daemons)
        for daemon in daemons:
            daemon.process.kill()
        for daemon in daemons:
            daemon.process.wait()

    def start_all(self):
        self.cluster.start_coordinator()
        for daemon in self.cluster.workers.values():
            daemon.start()

    def pause(self, seconds):
        """Lets the job run; the moment of the kill is what is random."""
        with self.assertRaises(AssertionError):
            e2e.wait_until(lambda: False, seconds, "")

    def describe(self, name):
        status = self.cluster.job(name)["status"]
        return "%s; logs: %s" % (status["conditions"][-4:], "".join(
            w.text()[-1500:] for w in self.cluster.workers.values()))

    def test_everything_is_killed_at_random_moments(self):
        steps = 12 * KILLS + 60
        self.create("whole", steps)
        self.cluster.wait_state("whole", "SUCCEEDED", 600)
        self.create("killed", steps)
        e2e.wait_until(lambda: self.cluster.step("killed") > 0, 60, "the first step")
        kills = 0
        while kills < KILLS and self.cluster.state("killed") != "SUCCEEDED":
            self.pause(self.random.uniform(0, 0.4))
            self.kill_all()
            kills += 1
            self.start_all()
            e2e.wait_until(lambda: self.cluster.state("killed") in ("RUNNING", "SUCCEEDED"), 60,
                           "the job to go on after kill %d: %s" % (kills, self.describe("killed")))
        print("%d kills, then at step %d" % (kills, self.cluster.step("killed")))
        self.cluster.wait_state("killed", "SUCCEEDED", 600)
        self.assert_same_training("whole", "killed")
        self.assertFalse(self.cluster.job("killed")["status"].get("error"))

    def test_one_worker_is_killed(self):
        self.create("whole", 120)
        self.cluster.wait_state("whole", "SUCCEEDED", 120)
        self.create("killed", 120)
        e2e.wait_until(lambda: self.cluster.step("killed") > 2, 60, "steps")
        self.cluster.workers["w1"].kill()
        self.cluster.wait_state("killed", "RECOVERING", 20)
        condition = self.cluster.job("killed")["status"]["conditions"][-1]
        self.assertIn("workers/w1", condition["message"])
        # It waits for the worker that holds its state, and holds up nobody.
        self.cluster.wait_idle(1)
        self.cluster.workers["w1"].start()
        self.cluster.wait_state("killed", "SUCCEEDED", 120)
        self.assert_same_training("whole", "killed")

    def test_a_cancelled_job_leaves_nothing(self):
        self.create("gone", 1000000)
        e2e.wait_until(lambda: self.cluster.step("gone") > 2, 60, "steps")
        self.kill_all()
        self.start_all()
        code, _, err = self.cluster.cli("cancel", "gone")
        self.assertEqual(code, 0, err)
        self.cluster.wait_state("gone", "CANCELLED", 60)
        e2e.wait_until(lambda: e2e.state_bytes(self.cluster) < 65536, 30, "its state to go")


if __name__ == "__main__":
    e2e.main()
