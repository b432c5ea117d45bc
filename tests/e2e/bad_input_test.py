"""Malformed job files and data files: each is refused with the field or the file and position named,
nothing crashes, nothing is created."""
import os
import struct
import unittest

from tests.e2e import cluster as e2e

GOOD = """
model: {family: gpt2, vocab_size: 256, context_length: 32, layers: 2, heads: 2, hidden_size: 32}
data: {path: text.txt, format: text, sequence_length: 32}
learning_rate: {peak: 1e-3}
batch: {global_batch_size: 4}
steps: 3
"""


def edit(old, new):
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


# name, job file, exit code, parts of the message
JOB_FILES = [
    ("empty", "", 2, ["exactly one job"]),
    ("only_comment", "# nothing\n", 2, ["exactly one job"]),
    ("two_documents", GOOD + "---\n" + GOOD, 2, ["exactly one job"]),
    ("not_yaml", "model: [unclosed", 2, ["standard input:", "not valid YAML"]),
    ("not_yaml_tab", "model:\n\t- x", 2, ["standard input:2"]),
    ("scalar", "hello", 2, ["spec", "mapping"]),
    ("list", "- a\n- b", 2, ["spec", "mapping"]),
    ("bad_json", '{"model": {"family": "gpt2",,}}', 2, ["standard input:1"]),
    ("unknown_top", GOOD + "modle: 1\n", 2, ["spec.modle", "unknown field", ":7:1"]),
    ("unknown_nested", edit("layers: 2", "layer: 2"), 2, ["spec.model.layer", "unknown field"]),
    ("duplicate", GOOD + "steps: 4\n", 2, ["spec.steps", "given twice"]),
    ("null", edit("steps: 3", "steps:"), 2, ["spec.steps", "must not be empty"]),
    ("word_for_int", edit("layers: 2", "layers: two"), 2, ["spec.model.layers", '"two"', "integer"]),
    ("float_for_int", edit("layers: 2", "layers: 2.5"), 2, ["spec.model.layers", '"2.5"']),
    ("overflow_int", edit("layers: 2", "layers: 99999999999"), 2, ["spec.model.layers"]),
    ("overflow_int64", edit("steps: 3", "steps: 99999999999999999999"), 2, ["spec.steps"]),
    ("word_for_number", edit("peak: 1e-3", "peak: fast"), 2, ["spec.learning_rate.peak", '"fast"']),
    ("nan", edit("peak: 1e-3", "peak: .nan"), 2, ["spec.learning_rate.peak"]),
    ("nan_fraction", GOOD + "offload: {optimizer: {tier: nvme, fraction: .nan}}\n", 2,
     ["spec.offload.optimizer.fraction", '".nan"', "must be a number"]),
    ("inf_fraction", GOOD + "offload: {optimizer: {tier: nvme, fraction: .inf}}\n", 2,
     ["spec.offload.optimizer.fraction: inf: must be above 0 and at most 1"]),
    ("list_for_scalar", edit("steps: 3", "steps: [3]"), 2, ["spec.steps", "single value"]),
    ("map_for_scalar", edit("steps: 3", "steps: {a: 3}"), 2, ["spec.steps", "single value"]),
    ("scalar_for_map", edit("batch: {global_batch_size: 4}", "batch: 4"), 2, ["spec.batch", "mapping"]),
    ("scalar_for_list", edit("sequence_length: 32", "sequence_length: 32, ignore_target_ids: 7"), 2,
     ["spec.data.ignore_target_ids", "list"]),
    ("bad_enum", edit("family: gpt2", "family: gpt5"), 2, ["spec.model.family", '"gpt5"', "gpt2, llama"]),
    ("enum_unspecified", edit("format: text", "format: unspecified"), 2, ["spec.data.format"]),
    ("bool_word", GOOD + "sequence_parallel: maybe\n", 2, ["spec.sequence_parallel", "true or false"]),
    ("not_utf8", edit("path: text.txt", 'path: "\udcff.txt"'), 2, ["spec.data.path", "UTF-8"]),
    ("no_model", GOOD.replace(GOOD.splitlines()[1] + "\n", ""), 2, ["spec.model", "required"]),
    ("no_data", GOOD.replace(GOOD.splitlines()[2] + "\n", ""), 2, ["spec.data", "required"]),
    ("no_rate", GOOD.replace(GOOD.splitlines()[3] + "\n", ""), 2, ["spec.learning_rate", "required"]),
    ("no_batch", GOOD.replace(GOOD.splitlines()[4] + "\n", ""), 2, ["spec.batch", "required"]),
    ("zero_steps", edit("steps: 3", "steps: 0"), 2, ["spec.steps", "0"]),
    ("negative_layers", edit("layers: 2", "layers: -1"), 2, ["spec.model.layers", "-1", "1 .. 1024"]),
    ("heads_divide", edit("heads: 2", "heads: 3"), 2, ["spec.model.hidden_size", "multiple", "3"]),
    ("vocab_one", edit("vocab_size: 256", "vocab_size: 1"), 2, ["spec.model.vocab_size"]),
    ("long_sequence", edit("sequence_length: 32", "sequence_length: 33"), 2,
     ["spec.data.sequence_length", "33"]),
    ("batch_divides", GOOD + "mesh: {dp: 3}\n", 2, ["spec.batch.global_batch_size", "4", "3"]),
    ("micro_divides", edit("global_batch_size: 4", "global_batch_size: 4, micro_batches: 3"), 2,
     ["spec.batch.global_batch_size", "multiple"]),
    ("too_many_tokens", edit("global_batch_size: 4", "global_batch_size: 16777216"), 2,
     ["spec.batch.global_batch_size", "tokens a step"]),
    ("negative_dp", GOOD + "mesh: {dp: -2}\n", 2, ["spec.mesh", "-2"]),
    ("huge_mesh", GOOD + "mesh: {dp: 65536, tp: 65536}\n", 2, ["spec.mesh", "65536"]),
    ("negative_rate", edit("peak: 1e-3", "peak: -1"), 2, ["spec.learning_rate.peak", "-1"]),
    ("final_above_peak", edit("peak: 1e-3", "peak: 1e-3, final: 1"), 2, ["spec.learning_rate.final"]),
    ("warmup_too_long", edit("peak: 1e-3", "peak: 1e-3, warmup_steps: 4"), 2,
     ["spec.learning_rate.warmup_steps"]),
    ("beta", GOOD + "optimizer: {beta1: 1}\n", 2, ["spec.optimizer.beta1"]),
    ("epsilon", GOOD + "optimizer: {epsilon: 0}\n", 2, ["spec.optimizer.epsilon"]),
    ("clip", GOOD + "optimizer: {gradient_clip_norm: 0}\n", 2, ["spec.optimizer.gradient_clip_norm"]),
    ("ignore_id", edit("sequence_length: 32", "sequence_length: 32, ignore_target_ids: [256]"), 2,
     ["spec.data.ignore_target_ids", "256"]),
    ("evaluation_without_file", GOOD + "evaluation: {every_steps: 5}\n", 2,
     ["spec.data.validation_path", "required"]),
    ("parameter_gather", GOOD + "zero_stage: 2\nparameter_gather: {prefetch_units: 1}\n", 2,
     ["spec.parameter_gather", "only with spec.zero_stage 3"]),
    ("zero_stage_4", GOOD + "zero_stage: 4\n", 2, ["spec.zero_stage", "4"]),
    ("sample_without_prompt", GOOD + "sample: {max_new_tokens: 4}\n", 2, ["spec.sample.prompt"]),
    ("llama_needs_width", edit("family: gpt2", "family: llama"), 2,
     ["spec.model.intermediate_size", "required for family llama"]),
    ("kv_heads_of_gpt2", edit("heads: 2", "heads: 2, kv_heads: 1"), 2,
     ["spec.model.kv_heads", "only for family llama"]),
    ("loss_scale_of_fp32", GOOD + "loss_scale: {initial: 2}\n", 2,
     ["spec.loss_scale", "only with spec.precision fp16"]),
    ("gradients_of_another_kind", GOOD + "precision: bf16\ngradient_precision: fp16\n", 2,
     ["spec.gradient_precision", "fp32 or the same"]),
    ("recompute_range", GOOD + "recompute: full\nrecompute_layers: {first: 1, count: 2}\n", 2,
     ["spec.recompute_layers.count", "1 .. 1"]),
    ("weights_outside", GOOD + "initial_weights: ../weights\n", 2, ["spec.initial_weights", ".."]),
    ("weights_missing", GOOD + "initial_weights: nowhere\n", 3,
     ["spec.initial_weights", "nowhere"]),
    ("export_outside", GOOD + "export: {path: /tmp/x}\n", 2, ["spec.export.path", "/tmp/x"]),
    # Model and mesh that do not go together.
    ("tp", GOOD + "mesh: {tp: 4}\n", 2, ["spec.model.heads", "multiple of spec.mesh.tp (4)"]),
    ("pp", GOOD + "mesh: {pp: 3}\n", 2, ["spec.model.layers", "spec.mesh.pp * spec.pipeline_chunks (3 * 1)"]),
    ("cp", GOOD + "mesh: {cp: 3}\n", 2, ["spec.data.sequence_length", "the nearest are 30 and 36"]),
    ("chunks", GOOD + "pipeline_chunks: 2\n", 2, ["spec.pipeline_chunks", "interleaved_1f1b"]),
    ("schedule", GOOD + "pipeline_schedule: interleaved_1f1b\n", 2,
     ["spec.pipeline_schedule", "spec.mesh.pp of at least 2"]),
    ("chunk_layers", GOOD + "chunk_layers: [1]\n", 2, ["spec.chunk_layers", "sums to 1"]),
    ("cp_kind", GOOD + "mesh: {cp: 4}\ncontext_parallel: ulysses\n", 2, ["spec.model.heads", "ulysses"]),
    ("sp", edit("sequence_length: 32", "sequence_length: 31").replace(
        "global_batch_size: 4", "global_batch_size: 1") + "mesh: {tp: 2}\nsequence_parallel: true\n", 2,
     ["spec.sequence_parallel", "multiple of spec.mesh.tp (2)"]),
    # What the schema can say and this version cannot do.
    ("dropout", edit("heads: 2", "heads: 2, dropout: 0.1"), 2, ["UNIMPLEMENTED", "spec.model.dropout"]),
    ("clip_before_reduce", GOOD + "mesh: {cp: 2}\noptimizer: {gradient_clipping: before_reduce}\n", 2,
     ["UNIMPLEMENTED", "spec.optimizer.gradient_clipping"]),
    # Paths.
    ("absolute", edit("path: text.txt", "path: /etc/passwd"), 2, ["spec.data.path", "/etc/passwd"]),
    ("dotdot", edit("path: text.txt", "path: ../secret"), 2, ["spec.data.path", "../secret"]),
    ("dotdot_inside", edit("path: text.txt", "path: a/../../x"), 2, ["spec.data.path"]),
    ("empty_path", edit("path: text.txt", 'path: ""'), 2, ["spec.data.path", "required"]),
    ("link_out", edit("path: text.txt", "path: escape"), 2, ["spec.data.path", "leaves the data root"]),
    ("missing", edit("path: text.txt", "path: none.txt"), 3, ["NOT_FOUND", "spec.data.path", "none.txt"]),
    ("folder", edit("path: text.txt", "path: folder"), 2, ["spec.data.path", "regular file"]),
]


def header(*words):
    return struct.pack("<%di" % len(words), *words).ljust(1024, b"\0")


# name, bytes, format, vocabulary, parts of the message
DATA_FILES = [
    ("empty.txt", b"", "text", 256, ["is empty"]),
    ("short.txt", b"abc", "text", 256, ["has 3 tokens", "33"]),
    ("high.txt", b"a" * 50 + b"\xc8" + b"a" * 50, "text", 128, ["token 50 (byte 50) is 200"]),
    ("odd.bin", b"\0" * 101, "nanogpt", 256, ["101 bytes", "uint16"]),
    ("id.bin", b"\1\0" * 60 + b"\0\1", "nanogpt", 256, ["token 60 (byte 120) is 256"]),
    ("cut_header.bin", header(20240520, 1, 9)[:999], "llmc", 256, ["999 bytes"]),
    ("magic.bin", header(20240521, 1, 0), "llmc", 256, ["magic at byte 0 is 20240521"]),
    ("version.bin", header(20240520, 7, 0), "llmc", 256, ["version at byte 4 is 7"]),
    ("lies.bin", header(20240520, 1, 100) + b"\1\0" * 99, "llmc", 256,
     ["token count at byte 8 is 100", "1224", "1222"]),
    ("negative.bin", header(20240520, 1, -100) + b"\1\0" * 99, "llmc", 256, ["-100"]),
    ("trailing.bin", header(20240520, 1, 98) + b"\1\0" * 99, "llmc", 256, ["98"]),
    ("llmc_id.bin", header(20240520, 1, 99) + b"\1\0" * 98 + b"\xff\xff", "llmc", 256,
     ["token 98 (byte 1220) is 65535"]),
    ("llama_id.bin", header(20240801, 7, 40) + b"\1\0\0\0" * 39 + b"\0\0\1\0", "llmc", 256,
     ["token 39 (byte 1180) is 65536"]),
]


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = e2e.Cluster(workers=1)
        e2e.write_text(cls.cluster)
        os.symlink("/etc/passwd", os.path.join(cls.cluster.data, "escape"))
        os.mkdir(os.path.join(cls.cluster.data, "folder"))

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def refuse(self, name, job, code, parts):
        with self.subTest(name):
            got, out, err = self.cluster.cli("create", "-f", "-", "--name", "bad", input=job)
            self.assertEqual(got, code, out + err)
            for part in parts:
                self.assertIn(part, err)
            self.assertEqual(self.cluster.cli("get", "jobs", "-o", "name")[1], "")

    def still_works(self):
        self.assertIsNone(self.cluster.coordinator.process.poll())
        self.assertIsNone(self.cluster.workers["w0"].process.poll())
        self.assertEqual(self.cluster.cli("create", "-f", "-", "--validate-only", input=GOOD)[0], 0)

    def test_job_files(self):
        self.assertGreaterEqual(len(JOB_FILES), 40)
        for case in JOB_FILES:
            self.refuse(*case)
        self.still_works()

    def test_data_files(self):
        for name, data, data_format, vocab, parts in DATA_FILES:
            with open(os.path.join(self.cluster.data, name), "wb") as file:
                file.write(data)
            job = GOOD.replace("path: text.txt, format: text", "path: %s, format: %s" % (
                name, data_format)).replace("vocab_size: 256", "vocab_size: %d" % vocab)
            self.refuse(name, job, 2, ["INVALID_ARGUMENT", "spec.data.path", name] + parts)
        self.still_works()

    def test_names_and_requests(self):
        for bad in ("A", "1a", "a_b", "a-", "x" * 64):
            code, _, err = self.cluster.cli("create", "-f", "-", "--name", bad, input=GOOD)
            self.assertEqual(code, 2, err)
            self.assertIn("training_job_id", err)
        code, _, err = self.cluster.cli("create", "-f", "-", "--request-id", "7", input=GOOD)
        self.assertEqual(code, 2, err)
        self.assertIn("request_id", err)
        self.still_works()


if __name__ == "__main__":
    e2e.main()
