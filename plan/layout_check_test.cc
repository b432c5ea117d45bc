#include "plan/layout_check.h"

#include <gtest/gtest.h>

#include <functional>

namespace tessera::plan {
namespace {

LayoutRequest Valid() {
  LayoutRequest request;
  request.mesh = {.dp = 1, .cp = 2, .pp = 2, .tp = 2};
  request.layers = 5;
  request.heads = 8;
  request.kv_heads = 4;
  request.intermediate_size = 64;
  request.sequence_length = 16;
  request.micro_batch_size = 3;
  request.sequence_parallel = true;
  request.schedule = {.schedule = PipelineSchedule::k1f1b, .stages = 2, .micro_batches = 3};
  return request;
}

TEST(LayoutCheck, AcceptsWhatCanBeTrained) {
  struct Case {
    const char* name;
    std::function<void(LayoutRequest&)> change;
  };
  const Case cases[] = {
      {"all_axes", [](auto&) {}},
      {"one_rank", [](auto& r) { r = LayoutRequest(); }},
      {"any_length_without_cp", [](auto& r) { r.mesh.cp = 1, r.sequence_length = 14; }},
      {"kv_heads_divide_tp", [](auto& r) { r.kv_heads = 1; }},
      {"ulysses", [](auto& r) { r.is_ulysses = true; }},
      {"ulysses_with_one_kv_head", [](auto& r) { r.is_ulysses = true, r.kv_heads = 2; }},
      {"interleaved",
       [](auto& r) {
         r.schedule.schedule = PipelineSchedule::kInterleaved1f1b, r.schedule.chunks = 2;
       }},
      {"explicit_layers",
       [](auto& r) {
         r.chunk_layers = {4, 1};
       }},
      {"fewer_micro_batches_than_stages", [](auto& r) { r.schedule.micro_batches = 1; }},
  };
  for (const Case& c : cases) {
    LayoutRequest request = Valid();
    c.change(request);
    const auto fault = CheckLayout(request);
    EXPECT_FALSE(fault.has_value()) << c.name << ": " << fault->field << ": " << fault->rule;
  }
}

TEST(LayoutCheck, EachRuleNamesFieldAndValue) {
  struct Case {
    const char* name;
    std::function<void(LayoutRequest&)> change;
    const char* field;
    const char* value;
    const char* rule;
  };
  const Case cases[] = {
      {"sequence_between", [](auto& r) { r.sequence_length = 18; }, "spec.data.sequence_length",
       "18", "must be a multiple of 2 * spec.mesh.cp = 4; the nearest are 16 and 20"},
      {"sequence_below", [](auto& r) { r.sequence_length = 3; }, "spec.data.sequence_length", "3",
       "must be a multiple of 2 * spec.mesh.cp = 4; the least is 4"},
      {"heads", [](auto& r) { r.heads = 9; }, "spec.model.heads", "9",
       "must be a multiple of spec.mesh.tp (2)"},
      {"kv_heads", [](auto& r) { r.mesh.tp = 4, r.kv_heads = 3; }, "spec.model.kv_heads", "3",
       "must be a multiple or a divisor of spec.mesh.tp (4)"},
      {"intermediate_size", [](auto& r) { r.intermediate_size = 33; },
       "spec.model.intermediate_size", "33", "must be a multiple of spec.mesh.tp (2)"},
      {"sequence_parallel",
       [](auto& r) {
         r.mesh.cp = 1;
         r.sequence_length = 15;
       },
       "spec.sequence_parallel", "true",
       "the tokens of a micro-batch on a rank (3 sequences of 15) must be a multiple of "
       "spec.mesh.tp (2)"},
      {"ulysses_heads", [](auto& r) { r.is_ulysses = true, r.heads = 6, r.kv_heads = 6; },
       "spec.model.heads", "6",
       "must be a multiple of spec.mesh.tp * spec.mesh.cp (2 * 2) with context_parallel ulysses"},
      {"ulysses_kv_heads", [](auto& r) { r.is_ulysses = true, r.heads = 12, r.kv_heads = 6; },
       "spec.model.kv_heads", "6",
       "gives each tp rank 3, which must be a multiple or a divisor of spec.mesh.cp (2) with "
       "context_parallel ulysses"},
      {"chunks_of_1f1b", [](auto& r) { r.schedule.chunks = 2; }, "spec.pipeline_chunks", "2",
       "must be 1 unless pipeline_schedule is interleaved_1f1b"},
      {"chunks_of_interleaved",
       [](auto& r) { r.schedule.schedule = PipelineSchedule::kInterleaved1f1b; },
       "spec.pipeline_chunks", "1", "must be at least 2 with pipeline_schedule interleaved_1f1b"},
      {"interleaved_on_one_stage",
       [](auto& r) {
         r.mesh.pp = r.schedule.stages = 1;
         r.schedule.schedule = PipelineSchedule::kInterleaved1f1b, r.schedule.chunks = 2;
       },
       "spec.pipeline_schedule", "interleaved_1f1b", "needs spec.mesh.pp of at least 2"},
      {"too_many_actions", [](auto& r) { r.schedule.micro_batches = (1 << 23) + 1; },
       "spec.batch.micro_batches", "8388609",
       "spec.mesh.pp * spec.batch.micro_batches * spec.pipeline_chunks is above 16777216"},
      {"layers", [](auto& r) { r.layers = 1; }, "spec.model.layers", "1",
       "must be at least spec.mesh.pp * spec.pipeline_chunks (2 * 1)"},
      {"layers_of_chunks",
       [](auto& r) {
         r.chunk_layers = {3, 1};
       },
       "spec.chunk_layers", "3, 1", "sums to 4, the model has 5 layers"},
      {"number_of_chunks", [](auto& r) { r.chunk_layers = {5}; }, "spec.chunk_layers", "5",
       "has 1 counts for 2 chunks (stages * chunks)"},
      {"empty_chunk",
       [](auto& r) {
         r.chunk_layers = {5, 0};
       },
       "spec.chunk_layers", "5, 0", "each must be at least 1"},
  };
  for (const Case& c : cases) {
    LayoutRequest request = Valid();
    c.change(request);
    const auto fault = CheckLayout(request);
    ASSERT_TRUE(fault.has_value()) << c.name;
    EXPECT_EQ(fault->field, c.field) << c.name;
    EXPECT_EQ(fault->value, c.value) << c.name;
    EXPECT_EQ(fault->rule, c.rule) << c.name;
  }
}

}  // namespace
}  // namespace tessera::plan
