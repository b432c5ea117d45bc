"""tessera plan against a coordinator without workers: what it prints, draws and refuses."""
import json
import os
import unittest
import xml.etree.ElementTree as ET

from tests.e2e import cluster as e2e

JOB = """
model: {family: gpt2, vocab_size: 257, context_length: 64, layers: 5, heads: 4, hidden_size: 32}
data: {path: nowhere.txt, format: text, sequence_length: 64}
learning_rate: {peak: 1e-3}
batch: {global_batch_size: 16, micro_batches: 4}
steps: 3
"""
MESH = JOB + "mesh: {dp: 2, cp: 2, pp: 2, tp: 2}\nsequence_parallel: true\n"


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = e2e.Cluster(workers=0)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def plan(self, job, *args):
        """stdout of a plan that is made."""
        code, out, err = self.cluster.cli("plan", "-f", "-", *args, input=job)
        self.assertEqual(code, 0, out + err)
        return out

    def refuse(self, job, code, parts, *args):
        got, out, err = self.cluster.cli("plan", "-f", "-", *args, input=job)
        self.assertEqual(got, code, out + err)
        self.assertEqual(out, "")
        for part in parts:
            self.assertIn(part, err)

    def test_table(self):
        out = self.plan(MESH)
        self.assertIn("Axes       dp, cp, pp, tp (outermost first)\n", out)
        self.assertIn("Mesh       dp=2 cp=2 pp=2 tp=2, 16 ranks\n", out)
        self.assertIn("Bubble     20.0% simulated, 20.0% by the formula\n", out)
        self.assertRegex(out, r"\n11 +1 +0 +1 +1 +3 11 +11 15 +9 11 +10 11 +3 7 11 15\n")
        self.assertRegex(out, r"\n0 +embedding, 0-2 +8 +4 +2 +2 +20.0%\n")
        self.assertRegex(out, r"\n1 +16-31, 32-47\n")
        self.assertIn("\nDevice memory of the rank of each stage that needs most\nSTAGE  PARAMETERS  ", out)
        self.assertRegex(out, r"\n1 +tp +reduce_scatter +\d+ +\S+ \S+\n")

    def test_json(self):
        plan = json.loads(self.plan(MESH, "-o", "json"))
        self.assertEqual(plan["axisOrder"], "dp, cp, pp, tp")
        self.assertEqual(plan["worldSize"], 16)
        self.assertEqual(len(plan["ranks"]), 16)
        rank = plan["ranks"][5]
        self.assertEqual(rank["coordinates"], {"globalRank": 5, "cpRank": 1, "tpRank": 1})
        for index in rank["groups"]:
            self.assertIn(5, plan["groups"][index]["members"])
        self.assertEqual([s["chunks"][0]["layers"]["count"] for s in plan["stages"]], [3, 2])
        self.assertAlmostEqual(plan["schedule"]["simulatedIdleShare"], 0.2)
        sends = [t for t in plan["stages"][0]["traffic"] if (t["axis"], t["kind"]) == ("pp", "send")]
        # Four activations of 2 sequences * 32 positions / 2 tp * 32 channels, and the tied embedding's
        # shard: 129 + 64 rows, over dp * cp = 4 in multiples of 32 elements.
        self.assertEqual(sends, [{"axis": "pp", "kind": "send", "calls": "5",
                                  "bytes": str(4 * 2 * 32 // 2 * 32 * 4 + 1568 * 4)}])
        memory = plan["stages"][0]["memory"]
        self.assertEqual(int(memory["optimizerBytes"]), 2 * int(memory["parametersBytes"]))
        self.assertEqual(int(memory.pop("totalBytes")), sum(int(value) for value in memory.values()))
        sharded = json.loads(self.plan(MESH + "zero_stage: 1\n", "-o", "json"))["stages"][0]["memory"]
        self.assertEqual(4 * int(sharded["optimizerBytes"]), int(memory["optimizerBytes"]))
        self.assertIn("axisOrder: dp, cp, pp, tp", self.plan(MESH, "-o", "yaml"))

    def test_every_schedule(self):
        for schedule, share in [("naive", 1 / 2), ("gpipe", 1 / 5), ("1f1b", 1 / 5), ("zero_bubble_h1", 1 / 13),
                                ("interleaved_1f1b", 1 / 9)]:
            plan = json.loads(self.plan(MESH + "pipeline_schedule: %s\n" % schedule, "-o", "json"))
            self.assertAlmostEqual(plan["schedule"]["simulatedIdleShare"], share, msg=schedule)
            self.assertAlmostEqual(plan["schedule"]["formulaIdleShare"], share, msg=schedule)

    def test_large_meshes(self):
        job = JOB.replace("global_batch_size: 16", "global_batch_size: 262144") + "mesh: {dp: 65536}\n"
        out = self.plan(job)
        self.assertIn("... and 65504 more ranks: -o wide, json or yaml\n", out)
        self.assertLess(out.count("\n"), 100)
        self.assertEqual(len(json.loads(self.plan(job, "-o", "json"))["ranks"]), 65536)

    def test_timelines(self):
        svg = os.path.join(self.cluster.dir, "schedule.svg")
        self.plan(MESH, "--timeline", svg)
        self.assertTrue(ET.parse(svg).getroot().tag.endswith("svg"))
        trace = os.path.join(self.cluster.dir, "schedule.json")
        self.plan(MESH, "--timeline", trace)
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        # Four micro-batches forward and backward on two stages.
        computed = [e for e in events if e["ph"] == "X" and e["name"].split()[0] in ("forward", "backward")]
        self.assertEqual(len(computed), 16)

    def test_errors(self):
        self.refuse(MESH.replace("tp: 2", "tp: 3"), 2, ["spec.model.heads", "multiple of spec.mesh.tp (3)",
                                                         "tessera explain spec.model.heads"])
        self.refuse(MESH.replace("length: 64", "length: 62"), 2, ["the nearest are 60 and 64"])
        self.refuse(JOB + "zero_stage: 4\n", 2, ["INVALID_ARGUMENT", "spec.zero_stage"])
        self.refuse(JOB + "mash: {}\n", 2, ["spec.mash", "unknown field"])
        self.refuse(JOB, 2, ["--timeline", "must end in .svg or .json"], "--timeline", "x.png")
        self.refuse(JOB, 2, ["--timeline: /nowhere/x.svg: No such file"], "--timeline", "/nowhere/x.svg")
        self.refuse(JOB, 2, ["-o: plan prints table, wide, json or yaml"], "-o", "name")
        long = MESH.replace("global_batch_size: 16, micro_batches: 4",
                            "global_batch_size: 65536, micro_batches: 32768")
        self.refuse(long, 2, ["timeline: TIMELINE_FORMAT_SVG", "is not drawn"], "--timeline", "x.svg")
        self.assertFalse(os.path.exists("x.svg"))
        code, _, err = self.cluster.cli("plan", "-f", "/nowhere.yaml")
        self.assertEqual(code, 3, err)
        self.assertEqual(self.cluster.cli("plan")[0], 2)

    def test_model_state(self):
        # No connection is made: this certificate would be missing.
        arguments = ["--cacert", "/nowhere", "plan", "--parameters", "7.5B", "--dp", "64"]
        code, out, err = self.cluster.cli(*arguments, "--device-memory", "32GB")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"\n0 +15 GB +15 GB +90 GB +120 GB +\S+ elements +no +-\n")
        self.assertRegex(out, r"\n3 +234 MB +234 MB +1.41 GB +1.88 GB +\S+ elements +yes +4\n")
        code, out, err = self.cluster.cli(*arguments, "--precision", "fp32", "-o", "json")
        self.assertEqual(code, 0, err)
        stages = json.loads(out)["stages"]
        self.assertEqual([stage["totalBytes"] for stage in stages],
                         ["120000000000", "60937500000", "31406250000", "1875000000"])
        self.assertIn("zeroStage: 3\n", self.cluster.cli(*arguments, "-o", "yaml")[1])

    def test_model_state_errors(self):
        for arguments, part in [
                (["--parameters", "lots"], "--parameters: \"lots\": must be a number such as"),
                (["--parameters", "7B", "--dp", "0"], "--dp: 0: must be 1 .. "),
                (["--parameters", "7B", "--dp", "x"], "--dp"),
                (["--parameters", "7B", "--device-memory", "32G"], "--device-memory: \"32G\": must be"),
                (["--parameters", "7B", "--precision", "int4"], "--precision: \"int4\": must be bf16"),
                (["--parameters", "7B", "-f", "job.yaml"], "--parameters"),
                (["--parameters", "7B", "-o", "name"], "-o: plan prints table, wide, json or yaml"),
                (["--dp", "2", "-f", "job.yaml"], "--parameters"),
                ([], "needs -f FILE or --parameters")]:
            code, out, err = self.cluster.cli("plan", *arguments)
            self.assertEqual(code, 2, out + err)
            self.assertEqual(out, "")
            self.assertIn(part, err)

    def test_nothing_is_created(self):
        self.plan(MESH)
        self.assertEqual(self.cluster.cli("get", "jobs", "-o", "name")[1], "")


if __name__ == "__main__":
    e2e.main()
