"""The device's budget at run time: jobs that outgrow it, and what a worker's process really takes."""
import os
import unittest

from tests.e2e import cluster as e2e

REPEATS = 100 if os.environ.get("TESSERA_LONG_TESTS") else 6

JOB = e2e.SMALL_JOB.format(steps=50, dp=2) + "zero_stage: 3\n"


def open_files(daemon):
    return len(os.listdir("/proc/%d/fd" % daemon.process.pid))


def status_bytes(daemon, key):
    """VmHWM (peak resident memory) or VmRSS of a process."""
    with open("/proc/%d/status" % daemon.process.pid) as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise AssertionError(key)


class OutgrownTest(unittest.TestCase):
    """Workers of a test build whose jobs take a quarter of the device more in every step."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = e2e.Cluster(workers=2, worker_program=e2e.PLANTED_WORKER, device_memory="64MiB",
                                  worker_environment={"TESSERA_PLANTED_ERROR": "grow_workspace"})
        e2e.write_text(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def fail_once(self, name):
        self.cluster.create(name, JOB)
        self.cluster.wait_state(name, "FAILED")
        status = self.cluster.job(name)["status"]
        self.assertEqual(status["error"]["code"], 8, status["error"])  # RESOURCE_EXHAUSTED
        self.assertRegex(
            status["error"]["message"],
            r"workers/w[01] \(global_rank [01]\) failed: workers/w[01] cpu:0: device memory "
            r"exhausted: planted in step 4 \(workspace\) needs 16777216 bytes, .*; held: .*workspace")
        self.cluster.wait_idle(2)

    def used(self):
        return [int(w.get("deviceMemoryUsedBytes", 0)) for w in self.cluster.get("workers")["workers"]]

    def test_workers_stay_healthy(self):
        pids = [w.process.pid for w in self.cluster.workers.values()]
        self.fail_once("first")
        files = [open_files(w) for w in self.cluster.workers.values()]
        resident = [status_bytes(w, "VmRSS") for w in self.cluster.workers.values()]
        for i in range(REPEATS):
            self.fail_once("grows%d" % i)
        e2e.wait_until(lambda: self.used() == [0, 0], 20, "no device memory to be held")
        self.assertEqual([w.process.pid for w in self.cluster.workers.values()], pids)
        self.assertEqual([open_files(w) for w in self.cluster.workers.values()], files)
        for now, before in zip([status_bytes(w, "VmRSS") for w in self.cluster.workers.values()], resident):
            self.assertLess(now - before, 16 << 20)
        # Two steps fit.
        self.cluster.create("fits", JOB.replace("steps: 50", "steps: 2"))
        self.cluster.wait_state("fits", "SUCCEEDED")


class ResidentMemoryTest(unittest.TestCase):
    def test_a_process_takes_its_arena_and_little_else(self):
        cluster = e2e.Cluster(workers=1, device_memory="1GiB")
        self.addCleanup(cluster.stop)
        e2e.write_text(cluster)
        worker = cluster.workers["w0"]
        idle = status_bytes(worker, "VmHWM")
        # 25 million parameters of 16 bytes, and activations of 512 tokens.
        cluster.create("big", """
model: {family: gpt2, vocab_size: 256, context_length: 128, layers: 8, heads: 8, hidden_size: 512}
data: {path: text.txt, format: text, sequence_length: 128}
learning_rate: {peak: 1e-4}
batch: {global_batch_size: 4}
steps: 2
""")
        cluster.wait_state("big", "SUCCEEDED")
        memory = cluster.job("big")["status"]["memory"][0]
        arena = int(memory["measured"]["totalBytes"])
        self.assertGreater(arena, 400 << 20)
        grown = status_bytes(worker, "VmHWM") - idle
        self.assertGreater(grown, 0.9 * arena)
        self.assertLess(grown, 1.1 * arena)


if __name__ == "__main__":
    e2e.main()
