"""A worker of a mesh dies at a random moment: what its job, its peers and the next job see."""
import os
import random
import time
import unittest

from tests.e2e import cluster as e2e

# Deaths in a row; more with --long.
ROUNDS = 25 if os.environ.get("TESSERA_LONG_TESTS") else 4
SEED = int(os.environ.get("TESSERA_KILL_SEED") or random.SystemRandom().randrange(1 << 32))

MESH_JOB = """
model: {{family: gpt2, vocab_size: 256, context_length: 32, layers: 4, heads: 2, hidden_size: 32}}
data: {{path: text.txt, format: text, sequence_length: 32, validation_path: text.txt}}
learning_rate: {{peak: 1e-3}}
batch: {{global_batch_size: 4, micro_batches: 4}}
steps: {steps}
mesh: {{pp: 2, tp: 2}}
evaluation: {{every_steps: 10, sequences: 4}}
seeds: {{init: 3, data: 4}}
"""


class MeshFailureTest(unittest.TestCase):
    def setUp(self):
        self.cluster = e2e.Cluster(workers=4)
        e2e.write_text(self.cluster)

    def tearDown(self):
        self.cluster.stop()

    def check_message(self, name, worker):
        status = self.cluster.job(name)["status"]
        message = status["error"]["message"]
        self.assertEqual(status["conditions"][-1]["reason"], "WORKER_LOST", message)
        rank = [r["coordinates"].get("globalRank", 0)
                for r in self.cluster.get("placement", name)["ranks"]
                if r["worker"] == "workers/" + worker][0]
        self.assertIn("workers/%s (global_rank %d)" % (worker, rank), message)
        # The coordinates that the members of a group have in common.
        self.assertRegex(message, r"group (pp|tp|dp|cp|zero)\[")
        self.assertRegex(message, "all_reduce|reduce_scatter|all_gather|broadcast|send|recv")
        return message

    def test_killed_worker_fails_the_job_within_two_seconds_with_names(self):
        print("TESSERA_KILL_SEED=%d" % SEED)
        draw = random.Random(SEED)
        slowest = 0
        for round in range(ROUNDS):
            name = "victim-%d" % round
            self.cluster.create(name, MESH_JOB.format(steps=1000000))
            e2e.wait_until(lambda: self.cluster.step(name) > 2, 30, "steps of " + name)
            worker = draw.choice(sorted(self.cluster.workers))
            # Anywhere in a few steps: forward, backward, the optimizer's or evaluation.
            time.sleep(draw.uniform(0, 0.2))
            self.assertEqual(self.cluster.state(name), "RUNNING")
            killed = time.monotonic()
            self.cluster.workers[worker].process.kill()
            e2e.wait_until(lambda: self.cluster.state(name) == "FAILED", 2.0,
                           "the job to fail; " + self.cluster.coordinator.text()[-3000:])
            elapsed = time.monotonic() - killed
            slowest = max(slowest, elapsed)
            print("%s failed after %.2fs: %s" % (worker, elapsed, self.check_message(name, worker)))
            # The others are idle and healthy; the killed one comes back under its name.
            self.cluster.wait_idle(3, timeout=5)
            self.cluster.workers[worker].process.wait()
            self.cluster.workers[worker].start()
            self.cluster.wait_idle(4)
            self.cluster.create("next-%d" % round, MESH_JOB.format(steps=5))
            self.cluster.wait_state("next-%d" % round, "SUCCEEDED")
        print("slowest of %d: %.2fs" % (ROUNDS, slowest))


if __name__ == "__main__":
    e2e.main()
