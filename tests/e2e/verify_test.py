"""tessera verify: layouts that compute what one rank does, and planted errors that it finds."""
import json
import re
import signal
import subprocess
import unittest

from tests.e2e import cluster as e2e

JOB = """
model: {family: gpt2, vocab_size: 257, context_length: 32, layers: 3, heads: 2, hidden_size: 32}
data: {path: text.txt, format: text, sequence_length: 32, validation_path: text.txt}
learning_rate: {peak: 1e-3, warmup_steps: 50}
batch: {global_batch_size: 8, micro_batches: 4}
steps: 1000
evaluation: {every_steps: 10, sequences: 4}
sample: {prompt: "and the ", max_new_tokens: 20}
export: {path: out}
trace: {step: 1000, path: trace}
seeds: {init: 3, data: 4}
"""
PP_TP = JOB + "mesh: {pp: 2, tp: 2}\n"
CP = JOB + "mesh: {cp: 2}\n"


class VerifyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = e2e.Cluster(workers=4)
        e2e.write_text(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def tearDown(self):
        for name in self.cluster.cli("get", "jobs", "-o", "name")[1].split():
            self.cluster.cli("cancel", name)
        self.cluster.wait_idle(4)

    def test_a_layout_passes(self):
        code, out, err = self.cluster.cli("verify", "-f", "-", "--name", "passes", input=PP_TP)
        self.assertEqual(code, 0, out + err)
        self.assertIn("trainingJobs/passes created\n", err)
        self.assertIn("Layout   dp=1 cp=1 pp=2 tp=2 (axes outermost first), 4 ranks, 1f1b, 4 micro-batches\n", out)
        self.assertEqual(len(re.findall(r"^[123]  .* ok$", out, re.M)), 3, out)
        self.assertIn("First tensor beyond its tolerance, in forward order: none\n", out)
        self.assertTrue(out.endswith("\nPASSED: the layout computes what one rank does\n"), out)
        job = self.cluster.job("passes")
        self.assertEqual(job["status"]["state"], "JOB_STATE_SUCCEEDED")
        self.assertEqual(job["status"]["conditions"][-1]["message"], "the layout computes what one rank does")
        self.assertEqual(job["spec"]["steps"], "3")
        self.assertEqual(job["spec"]["learningRate"]["warmupSteps"], "3")
        for field in ("evaluation", "sample", "export", "trace"):
            self.assertNotIn(field, job["spec"])
        code, out, err = self.cluster.cli("generate", "passes", "--prompt", "x")
        self.assertEqual(code, 3, err)
        self.assertIn("keeps no weights", err)
        self.assertNotIn("weightsWorker", job["status"])

    def test_describe_shows_traffic_and_report(self):
        code, out, err = self.cluster.cli("verify", "-f", "-", "--name", "described", "--steps", "2", input=PP_TP)
        self.assertEqual(code, 0, out + err)
        code, described, _ = self.cluster.cli("describe", "job", "described")
        self.assertEqual(code, 0)
        self.assertIn("\nVerification\n" + out, described)
        lines = re.search(r"Traffic of global_rank 0 in the last step\nAXIS .*\n((?:\S.*\n)+)", described)[1]
        self.assertRegex(lines, r"(?m)^tp +all_reduce +\d+ +\d.* equal$")
        self.assertRegex(lines, r"(?m)^pp +send +\d+ +\d.* equal$")
        for line in lines.splitlines():
            self.assertTrue(line.endswith("  equal"), line)

    def test_json(self):
        code, out, err = self.cluster.cli("verify", "-f", "-", "--steps", "1", "-o", "json", input=CP)
        self.assertEqual(code, 0, out + err)
        report = json.loads(out)
        self.assertIs(report["passed"], True)
        self.assertEqual([s["step"] for s in report["steps"]], ["1"])
        self.assertEqual(report["largestGradient"]["kind"], "gradient")
        self.assertNotIn("firstBeyond", report)

    def test_errors(self):
        for job, args, code, message in [
                (PP_TP, ["--steps", "0"], 2, "steps: 0: must be 1 .. 100"),
                (PP_TP, ["--steps", "101"], 2, "steps: 101: must be 1 .. 100"),
                (PP_TP.replace("tp: 2", "tp: 3"), [], 2, "spec.model.heads"),
                (PP_TP.replace("path: text.txt", "path: none.txt"), [], 3, "none.txt"),
                (PP_TP, ["--request-id", "x"], 2, "request_id: x: must be a UUID"),
                (PP_TP + "mash: {}\n", [], 2, "spec.mash"),
                (PP_TP + "offload: {optimizer: {tier: host}}\n", [], 2,
                 "spec.offload: not supported by this version: must be absent in a verification, "),
        ]:
            with self.subTest(args=args, message=message):
                got, out, err = self.cluster.cli("verify", "-f", "-", *args, input=job)
                self.assertEqual(got, code, out + err)
                self.assertEqual(out, "")
                self.assertIn(message, err)
        self.assertEqual(self.cluster.cli("verify")[0], 2)
        code, out, err = self.cluster.cli("create", "-f", "-", input=PP_TP + "verification: {}\n")
        self.assertEqual(code, 2, err)
        self.assertIn("spec.evaluation: must be absent with spec.verification", err)

    def test_a_sharded_layout_passes(self):
        job = JOB + "mesh: {dp: 2, pp: 2}\nzero_stage: 3\ngradient_reduction: per_micro_batch\n"
        code, out, err = self.cluster.cli("verify", "-f", "-", "--name", "sharded", input=job)
        self.assertEqual(code, 0, out + err)
        self.cluster.create("runs", job)
        self.cluster.wait_state("runs", "RUNNING")
        shards = [r["shards"] for r in self.cluster.get("placement", "runs")["ranks"]]
        # Ranks 0 and 2 are stage 0 of the two replicas: halves of the same units.
        halves = [{(s["unit"], s["kind"]): (int(s.get("offsetElements", 0)), int(s["sizeElements"]))
                   for s in shards[rank]} for rank in (0, 2)]
        self.assertEqual(halves[0].keys(), halves[1].keys())
        for key, (offset, size) in halves[0].items():
            self.assertEqual((offset, halves[1][key]), (0, (size, size)), key)

    def test_interrupt_detaches_and_cancel_is_told(self):
        # More ranks than there are workers: it waits.
        args = [e2e.CLI, "--endpoint=" + self.cluster.endpoint, "verify", "-f", "-", "--name"]
        job = PP_TP.replace("tp: 2", "tp: 2, dp: 2").encode()

        def start(name):
            client = subprocess.Popen(args + [name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)
            client.stdin.write(job)
            client.stdin.close()
            client.stdin = None
            # Its first line of progress: it watches.
            lines = [client.stderr.readline(), client.stderr.readline()]
            self.assertIn(b"PENDING", lines[1], lines)
            return client
        client = start("waits")
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=20)
        self.assertEqual((client.returncode, out), (130, b""), err)
        self.assertIn(b"Attach again: tessera watch waits\n", err)
        self.assertIn(b"tessera describe job waits\n", err)
        self.assertEqual(self.cluster.state("waits"), "PENDING")
        client = start("ends")
        self.assertEqual(self.cluster.cli("cancel", "ends")[0], 0)
        out, err = client.communicate(timeout=20)
        self.assertEqual((client.returncode, out), (6, b""), err)


class PlantedErrorTest(unittest.TestCase):
    def verify(self, error, workers, job, *args):
        """(exit code, stdout, stderr) on workers that all have the planted error."""
        cluster = e2e.Cluster(workers=workers, worker_program=e2e.PLANTED_WORKER,
                              worker_environment={"TESSERA_PLANTED_ERROR": error})
        self.addCleanup(cluster.stop)
        e2e.write_text(cluster)
        return cluster.cli("verify", "-f", "-", *args, input=job)

    def test_no_error(self):
        code, out, err = self.verify("", 4, PP_TP)
        self.assertEqual(code, 0, out + err)

    def test_a_doubled_gradient_of_a_bias(self):
        code, out, err = self.verify("double_bias_gradient", 4, PP_TP)
        self.assertEqual(code, 1, out + err)
        self.assertIn("in forward order: h.0.attn.c_proj.bias (gradient): ", out)
        self.assertRegex(out, r"\nh\.0\.attn\.c_proj\.bias +gradient +\S+ +\S+ +DIFFERS\n")
        self.assertRegex(out, r"\nDIFFERS from one rank in .*h\.0\.attn\.c_proj\.bias\n$")

    def test_a_dropped_all_reduce(self):
        code, out, err = self.verify("drop_all_reduce", 4, PP_TP)
        self.assertEqual(code, 1, out + err)
        self.assertRegex(out, r"\nDIFFERS from one rank in steps? 1.*; look at (wte|wpe|h\.\d+)\.[a-z_.]*(weight|bias)\n$")

    def test_positions_shifted_on_one_cp_rank(self):
        code, out, err = self.verify("shift_positions", 2, CP, "-o", "json")
        self.assertEqual(code, 1, out + err)
        report = json.loads(out)
        self.assertFalse(report.get("passed", False))
        self.assertFalse(report["steps"][0].get("passed", False))
        self.assertEqual(report["firstBeyond"]["name"], "wte.weight")


if __name__ == "__main__":
    e2e.main()
