"""Jobs from file to result, through the services."""
import json
import os
import shutil
import signal
import subprocess
import unittest
import uuid
import xml.etree.ElementTree

from tests.e2e import cluster as e2e


class TrainingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = e2e.Cluster(workers=2)
        e2e.write_text(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def tearDown(self):
        """Leaves no job behind that would keep the workers from the next test."""
        for name in self.cluster.cli("get", "jobs", "-o", "name")[1].split():
            self.cluster.cli("cancel", name)
        self.cluster.wait_idle(2)

    def losses(self, name):
        return [(p["step"], p["loss"]) for p in self.cluster.job(name)["status"]["progress"]["lossCurve"]]

    def test_trains_and_generates(self):
        job = e2e.SMALL_JOB.format(steps=60, dp=2) + (
            'sample: {prompt: "and the ", max_new_tokens: 20, temperature: 0}\n')
        self.cluster.create("train", job)
        self.cluster.wait_state("train", "SUCCEEDED")
        status = self.cluster.job("train")["status"]
        self.assertEqual(int(status["progress"]["step"]), 60)
        self.assertLess(status["progress"]["validationLoss"],
                        status["progress"]["firstValidationLoss"] - 0.5)
        states = [c["state"] for c in status["conditions"]]
        self.assertEqual(states, ["JOB_STATE_PENDING", "JOB_STATE_ADMITTED", "JOB_STATE_RUNNING",
                                  "JOB_STATE_SUCCEEDED"])
        code, out, _ = self.cluster.cli("describe", "job", "train")
        self.assertEqual(code, 0)
        self.assertIn("Loss, nats per target", out)
        self.assertIn("Sample", out)
        placement = self.cluster.get("placement", "train")
        self.assertEqual(placement["axisOrder"], "dp, cp, pp, tp")
        self.assertEqual([r["worker"] for r in placement["ranks"]], ["workers/w0", "workers/w1"])
        groups = {g["axis"]: len(g["members"]) for g in placement["ranks"][0]["groups"]}
        self.assertEqual(groups, {"dp": 2, "cp": 1, "pp": 1, "tp": 1, "zero": 2})
        self.assertEqual([r.get("shards", []) for r in placement["ranks"]], [[], []])  # it has ended

    def test_placement_of_a_running_job_names_its_shards(self):
        self.cluster.create("placed", e2e.SMALL_JOB.format(steps=1000000, dp=2))
        self.cluster.wait_state("placed", "RUNNING")
        shards = self.cluster.get("placement", "placed")["ranks"][1]["shards"]
        self.assertEqual({s["unit"] for s in shards}, {"embedding", "layer.0", "layer.1", "head"})
        self.assertEqual({s["tier"] for s in shards}, {"device"})

    def test_traces_a_step(self):
        job = e2e.SMALL_JOB.format(steps=4, dp=1).replace("mesh: {dp: 1}", "mesh: {pp: 2}")
        self.cluster.create("traced", job + "trace: {step: 3, path: traces/third}\n")
        self.cluster.wait_state("traced", "SUCCEEDED")
        traces = os.path.join(self.cluster.dir, "w0", "exports", "traces")
        with open(os.path.join(traces, "third.json")) as file:
            events = json.load(file)["traceEvents"]
        measured = [e for e in events if e["ph"] == "X"]
        self.assertEqual({e["pid"] for e in measured}, {0, 1})
        self.assertTrue(all(e["dur"] >= 0 for e in measured))
        starts = {e["id"] for e in events if e["ph"] == "s"}
        ends = {e["id"] for e in events if e["ph"] == "f"}
        self.assertEqual(starts, ends)
        self.assertGreater(len(starts), 0)
        drawn = xml.etree.ElementTree.parse(os.path.join(traces, "third.svg"))
        self.assertTrue(drawn.getroot().tag.endswith("svg"))

    def test_exports_and_starts_from_an_export(self):
        llama = e2e.SMALL_JOB.format(steps=40, dp=2).replace(
            "family: gpt2", "family: llama, kv_heads: 1, intermediate_size: 48")
        self.cluster.create("first", llama + "precision: bf16\nexport: {path: first, precision: fp32}\n")
        self.cluster.wait_state("first", "SUCCEEDED")
        exported = os.path.join(self.cluster.dir, "w0", "exports", "first")
        with open(os.path.join(exported, "config.json")) as file:
            self.assertEqual(json.load(file)["model_type"], "llama")
        self.assertTrue(os.path.exists(os.path.join(exported, "model.safetensors")))
        shutil.copytree(exported, os.path.join(self.cluster.data, "weights"))
        self.cluster.create("second", llama + "initial_weights: weights\n")
        self.cluster.wait_state("second", "SUCCEEDED")
        progress = [self.cluster.job(n)["status"]["progress"] for n in ("first", "second")]
        # bf16 weights against the fp32 ones that they were rounded from.
        self.assertAlmostEqual(progress[1]["firstValidationLoss"], progress[0]["validationLoss"],
                               delta=0.02)
        self.assertLess(progress[1]["validationLoss"], progress[0]["validationLoss"])
        other = llama.replace("kv_heads: 1", "kv_heads: 2") + "initial_weights: weights\n"
        code, _, err = self.cluster.cli("create", "-f", "-", "--name", "other", input=other)
        self.assertEqual(code, 2, err)
        self.assertIn("spec.model.kv_heads", err)
        self.assertIn("must be 1, as spec.initial_weights (weights) has it", err)
        self.cluster.create("again", llama + "export: {path: first}\n")
        self.cluster.wait_state("again", "FAILED")
        self.assertIn("spec.export.path: first: must not exist", json.dumps(self.cluster.job("again")))

    def test_same_seed_is_bitwise_the_same(self):
        for name in ("same-a", "same-b"):
            self.cluster.create(name, e2e.SMALL_JOB.format(steps=20, dp=2))
            self.cluster.wait_state(name, "SUCCEEDED")
        self.assertEqual(self.losses("same-a"), self.losses("same-b"))
        self.assertEqual(len(self.losses("same-a")), 20)

    def test_queued_jobs_run_in_order_of_creation(self):
        for name in ("z-first", "a-second"):
            self.cluster.create(name, e2e.SMALL_JOB.format(steps=30, dp=2))
        for name in ("z-first", "a-second"):
            self.cluster.wait_state(name, "SUCCEEDED")
        begin = {n: self.cluster.job(n)["status"]["conditions"][1]["transitionTime"]
                 for n in ("z-first", "a-second")}
        self.assertLess(begin["z-first"], begin["a-second"])

    def test_cancel_running_and_pending(self):
        self.cluster.create("long", e2e.SMALL_JOB.format(steps=1000000, dp=2))
        self.cluster.create("waits", e2e.SMALL_JOB.format(steps=10, dp=2))
        e2e.wait_until(lambda: self.cluster.step("long") > 2, 30, "steps")
        self.assertEqual(self.cluster.state("waits"), "PENDING")
        self.assertEqual(self.cluster.cli("cancel", "waits")[0], 0)
        self.assertEqual(self.cluster.state("waits"), "CANCELLED")
        self.assertEqual(self.cluster.cli("cancel", "long")[0], 0)
        self.cluster.wait_state("long", "CANCELLED", timeout=10)
        self.assertEqual(self.cluster.cli("cancel", "long")[0], 0)  # idempotent
        self.cluster.wait_idle(2)
        code, _, _ = self.cluster.cli("watch", "long")
        self.assertEqual(code, 6)

    def test_request_id_makes_a_retry_safe(self):
        request_id = str(uuid.uuid4())
        job = e2e.SMALL_JOB.format(steps=1, dp=1)
        args = ("create", "-f", "-", "--request-id", request_id, "-o", "json")
        first = json.loads(self.cluster.cli(*args, input=job)[1])
        second = json.loads(self.cluster.cli(*args, input=job)[1])
        self.assertEqual(first["uid"], second["uid"])
        code, _, err = self.cluster.cli(*args, input=e2e.SMALL_JOB.format(steps=2, dp=1))
        self.assertEqual(code, 3, err)
        self.assertIn("REQUEST_ID_REUSED", err)

    def test_validate_only_creates_nothing(self):
        job = e2e.SMALL_JOB.format(steps=1, dp=1)
        code, out, _ = self.cluster.cli("create", "-f", "-", "--name", "dry", "--validate-only",
                                        input=job)
        self.assertEqual((code, out), (0, "trainingJobs/dry is valid\n"))
        self.assertEqual(self.cluster.cli("get", "job", "dry")[0], 3)

    def test_exit_codes(self):
        job = e2e.SMALL_JOB.format(steps=5, dp=1)
        self.assertEqual(self.cluster.cli("create", "-f", "-", "--name", "codes", "--watch",
                                          input=job)[0], 0)
        cases = [
            (2, ["create"]),
            (2, ["nonsense"]),
            (2, ["get", "jobs", "-o", "xml"]),
            (2, ["wait", "codes", "--for", "happiness"]),
            (3, ["get", "job", "none"]),
            (3, ["cancel", "none"]),
            (3, ["get", "placement", "none"]),
            (0, ["wait", "codes", "--for", "state=SUCCEEDED"]),
            (1, ["wait", "codes", "--for", "state=FAILED"]),
            (3, ["create", "-f", "/no/such/file"]),
            (0, ["version"]),
            (0, ["completion", "bash"]),
            (2, ["completion", "csh"]),
            (0, ["explain", "spec.mesh.dp"]),
            (3, ["explain", "mesh.xp"]),
            (0, ["get", "workers", "-o", "yaml"]),
            (0, ["get", "jobs", "-o", "name"]),
        ]
        for expected, args in cases:
            code, out, err = self.cluster.cli(*args)
            self.assertEqual(code, expected, "%s: %s%s" % (args, out, err))
        code, _, err = self.cluster.cli("create", "-f", "-", "--name", "codes", input=job)
        self.assertEqual(code, 3, err)
        wrong = subprocess.run([e2e.CLI, "--endpoint=127.0.0.1:1", "get", "jobs"],
                               stderr=subprocess.PIPE, text=True)
        self.assertEqual(wrong.returncode, 4)
        self.assertIn("hint:", wrong.stderr)

    def test_interrupting_a_watch_detaches(self):
        self.cluster.create("detach", e2e.SMALL_JOB.format(steps=1000000, dp=1))
        watch = subprocess.Popen([e2e.CLI, "--endpoint=" + self.cluster.endpoint, "watch", "detach"],
                                 stderr=subprocess.PIPE, text=True)
        e2e.wait_until(lambda: self.cluster.step("detach") > 0, 30, "steps")
        first = watch.stderr.readline()
        self.assertIn("detach" if "detach" in first else "step", first)
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=10)
        self.assertEqual(watch.returncode, 130, err)
        self.assertIn("tessera watch detach", err)
        self.assertEqual(self.cluster.state("detach"), "RUNNING")
        self.cluster.cli("cancel", "detach")
        self.cluster.wait_state("detach", "CANCELLED", 10)

    def test_workers_train_on_after_a_job_that_does_not_fit(self):
        big = e2e.SMALL_JOB.format(steps=1, dp=1).replace("hidden_size: 32", "hidden_size: 2048")
        code, out, err = self.cluster.cli("create", "-f", "-", "--name", "big", input=big)
        self.assertEqual(code, 4, out + err)
        self.assertIn("RESOURCE_EXHAUSTED (INSUFFICIENT_DEVICE_MEMORY)", err)
        self.cluster.create("after-big", e2e.SMALL_JOB.format(steps=2, dp=2))
        self.cluster.wait_state("after-big", "SUCCEEDED")

    def test_lists_page_through(self):
        for i in range(3):
            self.cluster.create("page-%d" % i, e2e.SMALL_JOB.format(steps=1, dp=1))
        names = self.cluster.cli("get", "jobs", "-o", "name")[1].split()
        self.assertEqual(names, sorted(names))
        self.assertTrue({"trainingJobs/page-%d" % i for i in range(3)} <= set(names))


if __name__ == "__main__":
    e2e.main()
