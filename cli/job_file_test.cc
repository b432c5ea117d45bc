#include "cli/job_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

TEST(JobFile, YamlAndJsonGiveTheSameSpec) {
  const std::string yaml = R"(
model: {family: gpt2, vocab_size: 257, layers: 2}   # comment
optimizer: {gradient_clip_norm: .inf, gradient_clipping: before_reduce}
data: {ignore_target_ids: [1, 2]}
pipeline_schedule: 1f1b
precision: fp32
seeds: {init: 18446744073709551615}
sequence_parallel: true
)";
  const std::string json = R"({"model": {"family": "gpt2", "vocab_size": 257, "layers": 2},
    "optimizer": {"gradient_clip_norm": ".inf", "gradient_clipping": "before_reduce"},
    "data": {"ignore_target_ids": [1, 2]}, "pipeline_schedule": "1f1b", "precision": "fp32",
    "seeds": {"init": 18446744073709551615}, "sequence_parallel": true})";
  absl::StatusOr<v1::TrainingJobSpec> a = ParseJobFile(yaml, "a.yaml");
  absl::StatusOr<v1::TrainingJobSpec> b = ParseJobFile(json, "b.json");
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(a->SerializeAsString(), b->SerializeAsString());
  EXPECT_EQ(a->model().family(), v1::MODEL_FAMILY_GPT2);
  EXPECT_TRUE(std::isinf(a->optimizer().gradient_clip_norm()));
  EXPECT_EQ(a->pipeline_schedule(), v1::PIPELINE_SCHEDULE_1F1B);
  EXPECT_EQ(a->seeds().init(), 18446744073709551615u);
}

TEST(JobFile, ErrorsNameFileLineFieldValueAndRule) {
  const absl::Status status = ParseJobFile("model:\n  layers: two\n", "jobs/a.yaml").status();
  EXPECT_EQ(FieldOf(status), "spec.model.layers");
  EXPECT_EQ(status.message(),
            "spec.model.layers: \"two\": must be a 32-bit integer (jobs/a.yaml:2:11)");
}

TEST(JobFile, WhatIsNotANumberIsNamed) {
  for (const char* value : {".nan", "nan", "inf", "-.inf", "1e999"}) {
    const absl::Status status =
        ParseJobFile(absl::StrCat("offload: {optimizer: {tier: host, fraction: ", value, "}}"), "a")
            .status();
    EXPECT_EQ(status.message(), absl::StrCat("spec.offload.optimizer.fraction: \"", value,
                                             "\": must be a number (a:1:45)"));
  }
}

TEST(JobFile, UnknownFieldsTellWhatThereIs) {
  const absl::Status status = ParseJobFile("mesh: {xp: 1}", "a").status();
  EXPECT_EQ(FieldOf(status), "spec.mesh.xp");
  EXPECT_NE(status.message().find("dp, cp, pp, tp"), absl::string_view::npos);
}

TEST(JobFile, HostileFilesAreRefusedQuickly) {
  EXPECT_FALSE(ParseJobFile(std::string(2 << 20, 'x'), "big").ok());
  EXPECT_FALSE(ParseJobFile(std::string(5000, '['), "deep").ok());
  EXPECT_FALSE(ParseJobFile("a: &a [1]\nb: [*a, *a]\n", "alias").ok());
  EXPECT_FALSE(ParseJobFile(std::string("\0\0\0", 3), "zeros").ok());
  EXPECT_FALSE(ParseJobFile("model: *missing", "anchor").ok());
  EXPECT_FALSE(ReadJobFile("/no/such/file").ok());
  EXPECT_FALSE(ReadJobFile("/tmp").ok());
}

}  // namespace
}  // namespace tessera
