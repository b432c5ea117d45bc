"""Device memory: what does not fit is refused or waits, and what fits holds what was predicted."""
import json
import re
import unittest

from tests.e2e import cluster as e2e

# 3.2 million parameters: 52 MB of model state in fp32, of which AdamW's moments are half.
JOB = """
model: {family: gpt2, vocab_size: 256, context_length: 32, layers: 4, heads: 4, hidden_size: 256}
data: {path: text.txt, format: text, sequence_length: 32, validation_path: text.txt}
learning_rate: {peak: 1e-3}
batch: {global_batch_size: 8, micro_batches: 4}
steps: 2
seeds: {init: 3, data: 4}
"""
CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "communication", "workspace")

# name, what is added to the job
FITTING = [
    ("dp", "mesh: {dp: 2}\nevaluation: {every_steps: 1, sequences: 4}\n"),
    ("zero-1", "mesh: {dp: 2}\nzero_stage: 1\n"),
    ("zero-2", "mesh: {dp: 2}\nzero_stage: 2\ngradient_reduction: per_micro_batch\n"),
    ("zero-3", "mesh: {dp: 2}\nzero_stage: 3\nsample: {prompt: ab, max_new_tokens: 4}\n"),
    ("cp", "mesh: {cp: 2}\n"),
    ("pp", "mesh: {pp: 2}\nsample: {prompt: ab, max_new_tokens: 4}\n"),
    ("tp", "mesh: {tp: 2}\nsequence_parallel: true\nrecompute: full\n"),
]


class MemoryTest(unittest.TestCase):
    def start(self, workers, device_memory):
        cluster = e2e.Cluster(workers=workers, device_memory=device_memory)
        self.addCleanup(cluster.stop)
        e2e.write_text(cluster)
        return cluster

    def assert_agrees(self, name, rank):
        for category in CATEGORIES:
            predicted = int(rank["predicted"].get(category + "Bytes", 0))
            measured = int(rank["measured"].get(category + "Bytes", 0))
            self.assertLessEqual(abs(measured - predicted), 0.05 * predicted,
                                 "%s %s: predicted %d, measured %d" % (name, category, predicted, measured))
        # The sum of peaks is more than the peak of the sum where they come at different times.
        self.assertLessEqual(int(rank["measured"]["totalBytes"]), int(rank["predicted"]["totalBytes"]), name)

    def test_predicted_is_measured(self):
        cluster = self.start(2, "256MiB")
        for name, change in FITTING:
            with self.subTest(name):
                cluster.create(name, JOB + change)
                cluster.wait_state(name, "SUCCEEDED")
                code, out, err = cluster.cli("describe", "job", name, "-o", "json")
                self.assertEqual(code, 0, err)
                ranks = json.loads(out)["status"]["memory"]
                self.assertEqual([rank.get("globalRank", 0) for rank in ranks], [0, 1])
                for rank in ranks:
                    self.assert_agrees(name, rank)
                # A plan needs no worker to say the same.
                code, out, err = cluster.cli("plan", "-f", "-", "-o", "json", input=JOB + change)
                self.assertEqual(code, 0, err)
                stages = json.loads(out)["stages"]
                self.assertEqual(stages[0]["memory"], ranks[0]["predicted"])
        code, out, err = cluster.cli("describe", "job", "pp")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"\nRANK +CATEGORY +PREDICTED +MEASURED +DIFFERENCE\n")
        self.assertRegex(out, r"\n[01] +optimizer +.* +equal\n")
        code, out, err = cluster.cli("describe", "job", "pp", "-o", "wide")
        self.assertRegex(out, r"\n0 +total ")
        self.assertRegex(out, r"\n1 +total ")

    def test_what_does_not_fit_is_refused(self):
        cluster = self.start(2, "48MiB")
        job = JOB + "mesh: {dp: 2}\n"
        for arguments in (["create", "--name", "large"], ["create", "--validate-only"]):
            code, out, err = cluster.cli(*arguments, "-f", "-", input=job)
            self.assertEqual(code, 4, out + err)
            self.assertEqual(out, "")
            for part in ("RESOURCE_EXHAUSTED (INSUFFICIENT_DEVICE_MEMORY)", "pp_rank 0 needs",
                         "optimizer 25.", "0 of 2 attached workers", "(50331648 bytes)",
                         "tessera plan -f FILE"):
                self.assertIn(part, err)
        self.assertEqual(cluster.cli("get", "jobs", "-o", "name")[1], "")
        for worker in cluster.get("workers")["workers"]:
            self.assertEqual(worker["state"], "WORKER_STATE_IDLE")
            self.assertEqual(worker.get("deviceMemoryUsedBytes", "0"), "0")

        # Each layout that is offered fits, as it is pasted.
        offers = re.findall(r"^# pp_rank .*\n((?:[a-z_]+: .*\n)+)", err, re.M)
        self.assertGreaterEqual(len(offers), 2, err)
        for i, offer in enumerate(offers):
            with self.subTest(offer):
                name = "offer-%d" % i
                fields = [line.split(":")[0] for line in offer.splitlines()]
                kept = [line for line in job.splitlines() if line.split(":")[0] not in fields]
                cluster.create(name, "\n".join(kept) + "\n" + offer)
                cluster.wait_state(name, "SUCCEEDED")

    def test_a_verification_needs_the_whole_model(self):
        cluster = self.start(2, "48MiB")
        job = JOB + "mesh: {pp: 2}\n"
        code, out, err = cluster.cli("verify", "-f", "-", "--steps", "1", input=job)
        self.assertEqual(code, 4, out + err)
        self.assertIn("the whole model, which global_rank 0 verifies against", err)
        cluster.create("trains", job)
        cluster.wait_state("trains", "SUCCEEDED")

    def test_a_job_waits_for_workers_that_are_large_enough(self):
        cluster = self.start(1, "96MiB")
        cluster.create("waits", JOB + "mesh: {dp: 2}\n")
        conditions = cluster.job("waits")["status"]["conditions"]
        self.assertEqual(conditions[0]["message"], "waits for 2 workers; 1 are attached")
        cluster.start_worker("small", ["--device-memory=2MiB"])
        cluster.wait_idle(2)
        conditions = cluster.job("waits")["status"]["conditions"]
        self.assertEqual([c["reason"] for c in conditions], ["CREATED", "INSUFFICIENT_DEVICE_MEMORY"])
        self.assertEqual(cluster.state("waits"), "PENDING")
        # It holds up nobody.
        cluster.create("other", JOB)
        cluster.wait_state("other", "SUCCEEDED")
        self.assertEqual(len(cluster.job("waits")["status"]["conditions"]), 2)
        cluster.start_worker("large")
        cluster.wait_state("waits", "SUCCEEDED")
        self.assertEqual({place["worker"] for place in cluster.job("waits")["status"]["placement"]},
                         {"workers/w0", "workers/large"})


if __name__ == "__main__":
    e2e.main()
