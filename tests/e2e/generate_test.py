"""Text from weights of running jobs, of finished ones and of folders, through the services."""
import base64
import json
import os
import shutil
import signal
import subprocess
import unittest

from tests.e2e import cluster as e2e

SAMPLE = 'sample: {prompt: "and the ", max_new_tokens: 20, temperature: 0.8, top_k: 20, top_p: 0.9, seed: 7}\n'
LIKE_SAMPLE = ["--prompt", "and the ", "--max-new-tokens", "20", "--temperature", "0.8", "--top-k", "20",
               "--top-p", "0.9", "--seed", "7"]


class GenerateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = e2e.Cluster(workers=2)
        e2e.write_text(cls.cluster)
        cls.cluster.create("done", e2e.SMALL_JOB.format(steps=60, dp=2) + SAMPLE + "export: {path: done}\n")
        cls.cluster.wait_state("done", "SUCCEEDED")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def tearDown(self):
        for name in self.cluster.cli("get", "jobs", "-o", "name")[1].split():
            self.cluster.cli("cancel", name)
        self.cluster.wait_idle(2)

    def generate(self, *args, code=0):
        """(stdout without its last line's end, stderr)."""
        got, out, err = self.cluster.cli("generate", *args)
        self.assertEqual(got, code, err)
        return out[:-1] if out.endswith("\n") else out, err

    def sample(self):
        return base64.b64decode(self.cluster.job("done")["status"]["sample"]).decode("latin-1")

    def test_a_finished_job_as_its_own_sample(self):
        text, err = self.generate("done", *LIKE_SAMPLE)
        self.assertEqual(text.encode("utf-8", "surrogateescape").decode("latin-1"), self.sample().rstrip("\n"))
        self.assertIn("trainingJobs/done after step 60, on workers/w0", err)
        _, out, _ = self.cluster.cli("describe", "job", "done")
        self.assertIn("Final weights      workers/w0", out)

    def test_pieces_as_json(self):
        _, out, _ = self.cluster.cli("generate", "done", "-o", "json", *LIKE_SAMPLE)
        pieces = [json.loads(line) for line in out.splitlines()]
        tokens = [t for p in pieces for t in p.get("tokens", [])]
        text = b"".join(base64.b64decode(p.get("text", "")) for p in pieces)
        self.assertEqual(bytes(tokens), text)
        self.assertEqual(text.decode("latin-1"), self.sample())
        self.assertEqual([p["finishReason"] for p in pieces if "finishReason" in p], ["FINISH_REASON_LENGTH"])
        self.assertEqual((pieces[0]["step"], pieces[0]["worker"]), ("60", "workers/w0"))

    def test_greedy_is_greedy_and_stops(self):
        greedy = ["--prompt", "and", "--temperature", "0", "--max-new-tokens", "12"]
        text, _ = self.generate("done", *greedy)
        self.assertEqual(self.generate("done", *greedy, "--seed", "5")[0], text)
        self.assertEqual(self.generate("done", "--prompt", "and", "--top-k", "1", "--max-new-tokens", "12")[0], text)
        self.assertEqual(self.generate("done", "--prompt", "and", "--top-p", "1e-9", "--max-new-tokens", "12")[0],
                         text)
        stop = text[3]
        cut, _ = self.generate("done", *greedy, "--stop-tokens", str(ord(stop)))
        self.assertEqual(cut, text[:text.index(stop) + 1].rstrip("\n"))

    def test_a_folder_of_weights(self):
        shutil.copytree(os.path.join(self.cluster.dir, "w0", "exports", "done"),
                        os.path.join(self.cluster.data, "exported"))
        ids = ",".join(str(b) for b in b"and the ")
        out, _ = self.generate("--path", "exported", "--tokens", ids, *LIKE_SAMPLE[2:])
        self.assertEqual(bytes(int(t) for t in out.split()).decode("latin-1"), self.sample())
        _, err = self.generate("--path", "exported", "--prompt", "x", code=2)
        self.assertIn("tokenizer: required with text: there is none with the weights", err)
        text, _ = self.generate("--path", "exported", "--tokenizer", "bytes", *LIKE_SAMPLE)
        self.assertEqual(text.encode("utf-8", "surrogateescape").decode("latin-1"), self.sample().rstrip("\n"))

    def test_a_running_job(self):
        self.cluster.create("running", e2e.SMALL_JOB.format(steps=1000000, dp=2))
        self.cluster.wait_state("running", "RUNNING")
        e2e.wait_until(lambda: self.cluster.step("running") > 5, 60, "steps")
        steps = []
        for _ in range(3):
            text, err = self.generate("running", "--prompt", "and the ", "--max-new-tokens", "5")
            steps.append(int(err.split(" after step ")[1].split(",")[0]))
        self.assertEqual(steps, sorted(steps))
        self.assertGreater(steps[0], 5)
        before = self.cluster.step("running")
        e2e.wait_until(lambda: self.cluster.step("running") > before, 60, "it goes on")
        # From the finished job, too, beside the running one.
        self.assertEqual(self.generate("done", *LIKE_SAMPLE)[0].encode("utf-8", "surrogateescape").decode("latin-1"),
                         self.sample().rstrip("\n"))

    def test_errors(self):
        for args, code, message in [
                (["done", "--prompt", ""], 2, "prompt: must be at least one token"),
                (["done", "--prompt", "x" * 1000], 2, "prompt: 1000 tokens: must be fewer than"),
                (["done", "--prompt", "x", "--max-new-tokens", "1000"], 2, "max_new_tokens: 1000: must be at most"),
                (["done", "--prompt", "x", "--max-new-tokens", "0"], 2, "max_new_tokens: 0: must be at least 1"),
                (["done", "--tokens", "3,256"], 2, "prompt[1]: 256: must be 0 .. 255, the model's vocabulary"),
                (["done", "--tokens", "3,x"], 2, "--tokens: x: must be token ids"),
                (["done", "--tokens", ""], 2, "prompt: must be at least one token"),
                (["done"], 2, "give one of --prompt, --prompt-file and --tokens"),
                (["done", "--prompt", "x", "--tokens", "1"], 2, "give one of --prompt"),
                (["--prompt", "x"], 2, "give a job or --path"),
                (["done", "--path", "x", "--prompt", "x"], 2, "give a job or --path"),
                (["done", "--prompt", "x", "--top-p", "1.5"], 2, "top_p: 1.5: must be above 0 and at most 1"),
                (["done", "--prompt", "x", "--precision", "bf16"], 2, "precision: PRECISION_BF16: goes with path"),
                (["done", "--prompt", "x", "--seed", "-1"], 2, "--seed: -1: must be 0 .. 18446744073709551615"),
                (["done", "--prompt-file", "/tmp"], 2, "--prompt-file: /tmp: Is a directory"),
                (["done", "--prompt-file", "/none"], 3, "--prompt-file: /none: No such file"),
                (["done", "--prompt-file", "/dev/zero"], 2, "--prompt-file: /dev/zero: must be at most 8388608"),
                (["done", "--prompt", "x", "--stop-tokens", "256"], 2, "stop_tokens: 256: must be 0 .. 255"),
                (["done", "--prompt", "x", "-o", "yaml"], 2, "generate prints text, or json"),
                (["done", "--prompt", "x", "--tokenizer", "none"], 3, "tokenizer: none"),
                (["none", "--prompt", "x"], 3, "trainingJobs/none: there is no such job"),
                (["--path", "../x", "--prompt", "x"], 2, "path: ../x"),
                (["--path", "none", "--prompt", "x"], 3, "path: none"),
                (["--path", "text.txt", "--prompt", "x"], 2, "path: text.txt"),
        ]:
            with self.subTest(args=args):
                out, err = self.generate(*args, code=code)
                self.assertEqual(out, "")
                self.assertIn(message, err)

    def test_a_job_without_weights(self):
        self.cluster.create("big", e2e.SMALL_JOB.format(steps=10, dp=4))
        _, err = self.generate("big", "--prompt", "x", code=3)
        self.assertIn("trainingJobs/big: is PENDING: must be RUNNING or SUCCEEDED", err)

    def test_interrupted_and_lost(self):
        # An evaluation that does not end soon: the generation waits for the step after it.
        with open(os.path.join(self.cluster.data, "long.txt"), "w") as file:
            file.write("x" * (64 << 20))
        slow = e2e.SMALL_JOB.format(steps=10, dp=1).replace(
            "validation_path: text.txt", "validation_path: long.txt").replace(", sequences: 4", "")
        self.cluster.create("slow", slow)
        self.cluster.wait_state("slow", "RUNNING")
        args = [e2e.CLI, "--endpoint=" + self.cluster.endpoint, "generate", "slow", "--prompt", "x"]
        waiting = subprocess.Popen(args, stderr=subprocess.PIPE)
        try:
            waiting.communicate(timeout=1)
            self.fail("it should wait for the step's end")
        except subprocess.TimeoutExpired:
            pass
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=20)
        self.assertEqual((waiting.returncode, err), (130, b"interrupted\n"))
        waiting = subprocess.Popen(args, stderr=subprocess.PIPE)
        try:
            waiting.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            pass
        worker = self.cluster.get("placement", "slow")["ranks"][0]["worker"].split("/")[1]
        self.cluster.workers[worker].kill()
        _, err = waiting.communicate(timeout=20)
        self.assertEqual(waiting.returncode, 4, err)
        self.assertIn(b"workers/%s was lost while it generated" % worker.encode(), err)
        self.cluster.start_worker(worker)

    def test_weights_outlive_the_workers_process(self):
        self.cluster.workers["w0"].terminate()
        self.assertIn("its weights are on workers/w0, which is not attached",
                      self.generate("done", "--prompt", "x", code=4)[1])
        self.cluster.start_worker("w0")
        self.cluster.wait_idle(2)
        self.assertEqual(self.generate("done", *LIKE_SAMPLE)[0].encode("utf-8", "surrogateescape").decode("latin-1"),
                         self.sample().rstrip("\n"))


if __name__ == "__main__":
    e2e.main()
