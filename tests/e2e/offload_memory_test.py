"""Models that do not fit the device train all the same, with their state in the other tiers."""
import json
import re
import unittest

from tests.e2e import cluster as e2e

GPT2 = """
model: {family: gpt2, vocab_size: 50257, context_length: 64, layers: 12, heads: 12, hidden_size: 768}
data: {path: tokens.bin, format: nanogpt, sequence_length: 32}
precision: bf16
learning_rate: {peak: 1e-4}
batch: {global_batch_size: 1}
steps: 2
"""

# 19 million parameters in 24 layers, 16 bytes each: 304 MB.
DEEP = """
model: {family: gpt2, vocab_size: 256, context_length: 32, layers: 24, heads: 4, hidden_size: 256}
data: {path: text.txt, format: text, sequence_length: 32}
precision: bf16
recompute: full
learning_rate: {peak: 1e-3}
batch: {global_batch_size: 1}
steps: 3
"""
ALL_NVME = """
offload:
  optimizer: {tier: nvme}
  gradients: {tier: nvme}
  parameters: {tier: nvme}
  buffers: 6
  buffer_bytes: 1048576
"""


def plan(cluster, text):
    code, out, err = cluster.cli("plan", "-f", "-", "-o", "json", input=text)
    if code != 0:
        raise AssertionError(err)
    return json.loads(out)


class OffloadMemoryTest(unittest.TestCase):
    def start(self, device, host):
        cluster = e2e.Cluster(workers=1, device_memory=device,
                              worker_flags=["--host-memory=" + host])
        self.addCleanup(cluster.stop)
        e2e.write_text(cluster)
        with open(cluster.data + "/tokens.bin", "wb") as file:
            for i in range(4000):
                file.write(((i * 7919) % 50257).to_bytes(2, "little"))
        return cluster

    def test_gpt2_on_two_fifths_of_the_device_that_it_needs(self):
        cluster = self.start("64MiB", "4GiB")
        needed = self.needed_bytes(cluster, GPT2)
        cluster.stop()
        device = int(needed * 0.4)
        cluster = self.start(str(device), "4GiB")
        code, _, err = cluster.cli("create", "-f", "-", "--name", "plain", input=GPT2)
        self.assertNotEqual(code, 0)
        self.assertIn("offload", err)
        advice = re.findall(r"offload: \{[^\n]*\}", err)
        self.assertTrue(advice, err)
        print("needs %d bytes; refused with %d: %s" % (needed, device, advice[0]))
        cluster.create("offloaded", GPT2 + "offload: {optimizer: {tier: host}, "
                       "gradients: {tier: host}, parameters: {tier: host}}\n")
        cluster.wait_state("offloaded", "SUCCEEDED", 300)
        for line in advice:
            cluster.create("advised", GPT2 + line + "\n")
            cluster.wait_state("advised", "SUCCEEDED", 300)
            break

    def needed_bytes(self, cluster, text):
        memory = plan(cluster, text)["stages"][0]["memory"]
        return int(memory["totalBytes"])

    def test_a_state_three_times_the_device_and_the_host(self):
        cluster = self.start("60MiB", "16MiB")
        parameters = 24 * (12 * 256 * 256 + 13 * 256) + (256 + 32) * 256 + 2 * 256
        self.assertGreater(16 * parameters, 3 * (76 << 20))
        code, _, err = cluster.cli("create", "-f", "-", "--name", "plain", input=DEEP)
        self.assertNotEqual(code, 0, err)
        cluster.create("deep", DEEP + ALL_NVME)
        cluster.wait_state("deep", "SUCCEEDED", 300)
        memory = cluster.job("deep")["status"]["memory"][0]
        for predicted, measured in ((memory["predicted"], memory["measured"]),
                                    (memory["predictedTiers"], memory["measuredTiers"])):
            for key, value in measured.items():
                self.assertLessEqual(int(value), int(predicted[key]), key)
        self.assertEqual(memory["predictedTiers"], memory["measuredTiers"])


if __name__ == "__main__":
    e2e.main()
