"""Benchmarks run, and write the JSON that they promise. Says nothing about speed."""
import json
import os
import subprocess
import tempfile
import unittest

from tests.e2e import cluster as e2e


def run(name, *flags):
    """The JSON object a benchmark writes."""
    path = os.path.join(tempfile.mkdtemp(), name + ".json")
    subprocess.run(["tests/bench/" + name, "--json=" + path, *flags], check=True,
                   stdout=subprocess.PIPE, timeout=240)
    with open(path) as file:
        return json.load(file)


class BenchSmokeTest(unittest.TestCase):
    def test_comm(self):
        figures = run("comm_bench", "--ranks=2")
        self.assertGreater(figures["copy_gbps"], 0)
        self.assertTrue(figures["runs"])
        for row in figures["runs"]:
            self.assertEqual(set(row), {"op", "ranks", "bytes", "time_us", "algbw_gbps", "busbw_gbps"})
            self.assertGreater(row["time_us"], 0)
        self.assertIn(("all_reduce", 2, 64 << 20),
                      {(r["op"], r["ranks"], r["bytes"]) for r in figures["runs"]})

    def test_kernels(self):
        figures = run("kernels_bench", "--divisor=64", "--rounds=1", "--threads=1")
        for key in ("sgemm_gflops", "copy_gbps"):
            self.assertGreater(figures[key], 0, key)
        for row in figures["runs"]:
            self.assertEqual(set(row), {"kernel", "dtype", "unit", "rate", "limit", "ratio"})
            self.assertGreater(row["rate"], 0)
        self.assertLessEqual({("adamw", "bfloat16"), ("attention backward", "float32")},
                             {(r["kernel"], r["dtype"]) for r in figures["runs"]})

    def test_mesh(self):
        figures = run("mesh_bench", "--divisor=16", "--steps=1", "--rounds=1")
        self.assertGreater(figures["one_rank_tokens_per_s"], 0)
        self.assertEqual([row["mesh"] for row in figures["runs"]],
                         ["dp2", "tp2", "tp2_sp", "pp2", "cp2"])
        for row in figures["runs"]:
            self.assertEqual(set(row), {"mesh", "tokens_per_s", "ratio_to_one_rank", "bubble",
                                        "communication_share"})
            self.assertGreater(row["ratio_to_one_rank"], 0)
            self.assertEqual(row["bubble"] > 0, row["mesh"] == "pp2")

    def test_tier(self):
        figures = run("tier_bench", "--sizes_mib=16,32", "--rounds=2", "--value_kib=1024")
        self.assertEqual([row["bytes"] for row in figures["runs"]], [16 << 20, 32 << 20])
        for row in figures["runs"] + [figures]:
            for key in ("plain_write_gbps", "plain_read_gbps", "overwrite_gbps", "write_gbps",
                        "read_gbps", "write_ratio", "read_ratio"):
                self.assertGreater(row[key], 0, key)
            # By the kernel's count; the rest is keys, indices and the database's log.
            self.assertGreaterEqual(row["write_amplification"], 1)
            self.assertLess(row["write_amplification"], 1.1)

    def test_train(self):
        figures = run("train_bench", "--divisor=16", "--steps=1")
        self.assertEqual(set(figures["limit_gflops"]), {"fp32", "bf16"})
        self.assertEqual([(r["model"], r["precision"]) for r in figures["runs"]],
                         [(model, precision) for model in ("gpt2-124m", "llama-107m")
                          for precision in ("fp32", "bf16")])
        for row in figures["runs"]:
            self.assertEqual(row["threads"], 2)
            for key in ("tokens_per_s", "gflops", "share_of_limit", "peak_bytes"):
                self.assertGreater(row[key], 0, key)

    def test_zero(self):
        figures = run("zero_bench", "--divisor=16", "--steps=1", "--rounds=1")
        self.assertEqual([row["zero_stage"] for row in figures["runs"]], [0, 1, 2, 3])
        state = [row["state_bytes_per_rank"] for row in figures["runs"]]
        self.assertEqual(state, sorted(state, reverse=True))
        # fp32, two ranks: 16, 4 + 4 + 8 / 2, 4 + 12 / 2 and 16 / 2 bytes per parameter.
        for row, share in zip(figures["runs"], (1, 12 / 16, 10 / 16, 8 / 16)):
            self.assertAlmostEqual(row["state_bytes_per_rank"] / state[0], share, delta=0.01)
            self.assertGreater(row["ratio_to_stage_0"], 0)

    def test_offload(self):
        figures = run("offload_bench", "--divisor=16", "--steps=1", "--rounds=1",
                      "--micro_batches=1", "--path=" + tempfile.mkdtemp())
        self.assertEqual([row["tier"] for row in figures["runs"]], ["none", "host", "nvme"])
        for row in figures["runs"]:
            self.assertGreater(row["step_s"], 0)
            self.assertGreater(row["ratio_to_none"], 0)
            self.assertGreater(row["ratio_to_bound"], 0)
        self.assertGreater(figures["adamw_parameters_per_s"], 0)
        self.assertGreater(figures["adamw_share_of_bound"], 0)


if __name__ == "__main__":
    e2e.main()
