#include "plan/step_traffic.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::plan {
namespace {

using enum GroupAxis;
using enum TrafficKind;

// gpt2 of two layers, V = 101, C = 8, N = 4, H = 2, F = 32; two micro-batches of three sequences of
// eight tokens; fp32. M = 24 rows, so an activation has M*C*s = 768 bytes.
// Elements with padding: embedding 832 + 128, layer 384 + 640, head 2 * 32.
TrafficRequest Gpt2() {
  TrafficRequest request;
  request.model.layers = 2;
  request.model.vocab_size = 101;
  request.model.context_length = 16;
  request.model.heads = request.model.kv_heads = 4;
  request.model.head_size = 2;
  request.model.hidden_size = 8;
  request.model.intermediate_size = 32;
  request.model.tied_embeddings = true;
  request.chunks = {{{0, 2}, true, true}};
  request.micro_batches = 2;
  request.micro_batch_size = 3;
  request.sequence_length = 8;
  request.recompute_layers = {0, 2};
  return request;
}

struct Expected {
  GroupAxis axis;
  TrafficKind kind;
  int64_t calls;
  int64_t bytes;
};

struct Case {
  const char* name;
  std::function<void(TrafficRequest&)> change;
  std::vector<Expected> expected;  // all else is 0
};

std::string Text(const StepTraffic& traffic) {
  std::string text;
  for (GroupAxis axis : kGroupAxes) {
    for (TrafficKind kind : kTrafficKinds) {
      const TrafficCount& count = traffic.of(axis, kind);
      if (count.calls == 0 && count.bytes == 0) continue;
      absl::StrAppend(&text, GroupAxisName(axis), " ", TrafficKindName(kind), " ", count.calls,
                      " calls, ", count.bytes, " bytes\n");
    }
  }
  return text;
}

void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    TrafficRequest request = Gpt2();
    c.change(request);
    StepTraffic expected;
    for (const Expected& e : c.expected) expected.of(e.axis, e.kind) = {e.calls, e.bytes};
    EXPECT_EQ(Text(PredictStepTraffic(request)), Text(expected)) << c.name;
  }
}

TEST(StepTraffic, DataParallel) {
  Check({
      {"one_rank",
       [](auto&) {},
       {{kDp, kAllReduce, 1, 8},
        {kZero, kAllReduce, 2, 24 + 4},
        {kZero, kReduceScatter, 4, (960 + 2 * 1024 + 64) * 4},
        {kZero, kAllGather, 4, (960 + 2 * 1024 + 64) * 4}}},
      // Units are multiples of 32 * 5 = 160.
      {"padding_of_units",
       [](auto& r) { r.mesh.dp = 5; },
       {{kDp, kAllReduce, 1, 8},
        {kZero, kAllReduce, 3, 28 + 8},
        {kZero, kReduceScatter, 4, (960 + 2 * 1120 + 160) * 4},
        {kZero, kAllGather, 4, (960 + 2 * 1120 + 160) * 4}}},
      {"gradients_of_another_type",
       [](auto& r) {
         r.element_bytes = 4;
         r.gradient_bytes = 2;
       },
       {{kDp, kAllReduce, 1, 8},
        {kZero, kAllReduce, 2, 28},
        {kZero, kReduceScatter, 4, 3072 * 2},
        {kZero, kAllGather, 4, 3072 * 2}}},
  });
}

// v = 51, so per rank: embedding 416 + 128, layer 256 + 384, head 64 elements.
TEST(StepTraffic, TensorParallel) {
  const Expected dp{kDp, kAllReduce, 1, 8}, zero{kZero, kAllReduce, 2, 28},
      reduce{kZero, kReduceScatter, 4, (544 + 2 * 640 + 64) * 4},
      gather{kZero, kAllGather, 4, (544 + 2 * 640 + 64) * 4};
  // 4 a layer and micro-batch, 1 of embedding and head; norm and flag.
  const Expected activations{kTp, kAllReduce, 16 + 2 + 2 + 2, 20 * 768 + 12};
  const Expected logits{kTp, kAllGather, 3 * 2, 6 * 192};
  // Norms of layers, the final one, positions; norm and flag.
  const Expected shared{kTp, kAllReduce, 8 + 2 + 1 + 2, 10 * 32 + 512 + 12};
  Check({
      {"tp", [](auto& r) { r.mesh.tp = 2; }, {dp, activations, logits, zero, reduce, gather}},
      {"recompute_full",
       [](auto& r) {
         r.mesh.tp = 2;
         r.recompute = RecomputeKind::kFull;
       },
       {dp, {kTp, kAllReduce, 22 + 4, 24 * 768 + 12}, logits, zero, reduce, gather}},
      {"recompute_attention_is_local",
       [](auto& r) {
         r.mesh.tp = 2;
         r.recompute = RecomputeKind::kAttention;
       },
       {dp, activations, logits, zero, reduce, gather}},
      {"zero_bubble_without_sp",
       [](auto& r) {
         r.mesh.tp = 2;
         r.schedule = PipelineSchedule::kZeroBubbleH1;
       },
       {dp, activations, logits, zero, reduce, gather}},
      {"clips_before_reduce",
       [](auto& r) {
         r.mesh.tp = 2;
         r.clips_before_reduce = true;
       },
       {dp, {kTp, kAllReduce, 23, 20 * 768 + 16}, logits, zero, reduce, gather}},
      {"checks_replicated",
       [](auto& r) {
         r.mesh.tp = 2;
         r.checks_replicated_gradients = true;
       },
       {dp,
        activations,
        logits,
        {kTp, kBroadcast, 10 + 1 + 4, 14 * 32 + 512},
        zero,
        reduce,
        gather}},
      {"sp",
       [](auto& r) {
         r.mesh.tp = 2;
         r.sequence_parallel = true;
       },
       {dp,
        shared,
        {kTp, kReduceScatter, 8 + 8 + 2 + 2, 20 * 768},
        {kTp, kAllGather, 8 + 16 + 2 + 4 + 6, 30 * 768 + 6 * 192},
        zero,
        reduce,
        gather}},
      {"sp_checks_replicated",
       [](auto& r) {
         r.mesh.tp = 2;
         r.sequence_parallel = r.checks_replicated_gradients = true;
       },
       {dp,
        shared,
        {kTp, kReduceScatter, 20, 20 * 768},
        {kTp, kAllGather, 36, 30 * 768 + 6 * 192},
        {kTp, kBroadcast, 4, 4 * 32},
        zero,
        reduce,
        gather}},
      {"sp_recompute_attention",
       [](auto& r) {
         r.mesh.tp = 2;
         r.sequence_parallel = true;
         r.recompute = RecomputeKind::kAttention;
       },
       {dp,
        shared,
        {kTp, kReduceScatter, 20, 20 * 768},
        {kTp, kAllGather, 36 + 4, 34 * 768 + 6 * 192},
        zero,
        reduce,
        gather}},
      // One of two layers recomputes, twice in each of two micro-batches.
      {"sp_zero_bubble_recompute_full",
       [](auto& r) {
         r.mesh.tp = 2;
         r.sequence_parallel = true;
         r.schedule = PipelineSchedule::kZeroBubbleH1;
         r.recompute = RecomputeKind::kFull;
         r.recompute_layers = {1, 1};
       },
       {dp,
        shared,
        {kTp, kReduceScatter, 20 + 4, 24 * 768},
        {kTp, kAllGather, 36 + 8 + 8, 46 * 768 + 6 * 192},
        zero,
        reduce,
        gather}},
      {"sp_of_one_rank",
       [](auto& r) { r.sequence_parallel = true; },
       {dp, zero, {kZero, kReduceScatter, 4, 3072 * 4}, {kZero, kAllGather, 4, 3072 * 4}}},
  });
}

// Two of four ranks hold the same kv head. v = 26; embedding 224, layer 160 + 224 + 96, head 256.
TEST(StepTraffic, SharedKvHeads) {
  Check({{"llama",
          [](auto& r) {
            r.model.is_llama = r.model.attention_bias = true;
            r.model.tied_embeddings = false;
            r.model.kv_heads = 2;
            r.mesh.tp = 4;
          },
          {{kDp, kAllReduce, 1, 8},
           {kTp, kAllReduce, 20 + 4 + 4 + 2, 20 * 768 + 4 * 128 + 4 * 16 + 12},
           {kTp, kAllGather, 6, 6 * 384},
           {kZero, kAllReduce, 2, 28},
           {kZero, kReduceScatter, 4, (224 + 2 * 480 + 256) * 4},
           {kZero, kAllGather, 4, (224 + 2 * 480 + 256) * 4}}}});
}

TEST(StepTraffic, Pipeline) {
  const Expected dp{kDp, kAllReduce, 1, 8}, zero{kZero, kAllReduce, 2, 28},
      pp{kPp, kAllReduce, 3, 24 + 4 + 8};
  // The unit of a tied embedding, on both stages.
  constexpr int64_t kTied = 960 * 4;
  Check({
      {"first",
       [](auto& r) {
         r.mesh.pp = 2;
         r.chunks = {{{0, 1}, true, false}};
       },
       {dp,
        pp,
        {kPp, kSend, 3, 2 * 768 + kTied},
        {kPp, kRecv, 3, 2 * 768 + kTied},
        zero,
        {kZero, kReduceScatter, 2, (960 + 1024) * 4},
        {kZero, kAllGather, 2, (960 + 1024) * 4}}},
      // The head holds a copy of the tied embedding: 832 + 64, padded to the embedding's 960.
      {"last",
       [](auto& r) {
         r.mesh.pp = 2;
         r.chunks = {{{1, 1}, false, true}};
       },
       {dp,
        pp,
        {kPp, kSend, 3, 2 * 768 + kTied},
        {kPp, kRecv, 3, 2 * 768 + kTied},
        zero,
        {kZero, kReduceScatter, 2, (1024 + 960) * 4},
        {kZero, kAllGather, 2, (1024 + 960) * 4}}},
      {"middle",
       [](auto& r) {
         r.mesh.pp = 3;
         r.chunks = {{{1, 1}, false, false}};
       },
       {dp,
        pp,
        {kPp, kSend, 4, 4 * 768},
        {kPp, kRecv, 4, 4 * 768},
        zero,
        {kZero, kReduceScatter, 1, 4096},
        {kZero, kAllGather, 1, 4096}}},
      {"not_tied",
       [](auto& r) {
         r.mesh.pp = 2;
         r.model.tied_embeddings = false;
         r.chunks = {{{0, 1}, true, false}};
       },
       {dp,
        pp,
        {kPp, kSend, 2, 2 * 768},
        {kPp, kRecv, 2, 2 * 768},
        zero,
        {kZero, kReduceScatter, 2, (960 + 1024) * 4},
        {kZero, kAllGather, 2, (960 + 1024) * 4}}},
      {"interleaved",
       [](auto& r) {
         r.mesh.pp = 2;
         r.chunks = {{{0, 1}, true, false}, {{2, 1}, false, false}};
       },
       {dp,
        pp,
        {kPp, kSend, 7, 6 * 768 + kTied},
        {kPp, kRecv, 7, 6 * 768 + kTied},
        zero,
        {kZero, kReduceScatter, 3, (960 + 2 * 1024) * 4},
        {kZero, kAllGather, 3, (960 + 2 * 1024) * 4}}},
      // A message has M/tp rows, and the flag goes over zero too. v = 51: a unit of 544, padded to
      // 576, of which each rank of dp has a half.
      {"with_dp_and_sp",
       [](auto& r) {
         r.mesh = {.dp = 2, .pp = 2, .tp = 2};
         r.sequence_parallel = true;
         r.chunks = {{{1, 1}, false, true}};
       },
       {dp,
        pp,
        {kPp, kSend, 3, 2 * 384 + 288 * 4},
        {kPp, kRecv, 3, 2 * 384 + 288 * 4},
        {kTp, kAllReduce, 4 + 2 + 2, 6 * 32 + 12},
        {kTp, kReduceScatter, 4 + 4 + 2, 10 * 768},
        {kTp, kAllGather, 4 + 8 + 4 + 6, 16 * 768 + 6 * 192},
        {kZero, kAllReduce, 3, 36},
        {kZero, kReduceScatter, 2, (640 + 576) * 4},
        {kZero, kAllGather, 2, (640 + 576) * 4}}},
  });
}

// One micro-batch; units of 960, 2 * 1024 and 64 elements divide by dp = 2. P = 3072.
TEST(StepTraffic, ZeroStages) {
  const Expected dp{kDp, kAllReduce, 1, 8}, sums{kZero, kAllReduce, 3, 28 + 8},
      reduce{kZero, kReduceScatter, 4, 3072 * 4};
  auto stage = [](int zero_stage) {
    return [=](TrafficRequest& r) {
      r.mesh.dp = 2;
      r.micro_batches = 1;
      r.element_bytes = 2;  // of gathered parameters
      r.zero_stage = zero_stage;
    };
  };
  Check({
      {"gradients_are_gathered", stage(0), {dp, sums, reduce, {kZero, kAllGather, 4, 3072 * 4}}},
      {"or_parameters", stage(1), {dp, sums, reduce, {kZero, kAllGather, 4, 3072 * 2}}},
      {"sharded_gradients", stage(2), {dp, sums, reduce, {kZero, kAllGather, 4, 3072 * 2}}},
      // Twice but for the head, whose backward follows at once.
      {"sharded_parameters",
       stage(3),
       {dp, sums, reduce, {kZero, kAllGather, 7, (2 * 3072 - 64) * 2}}},
      // Final norms of 16 parameters are gathered after the update, as with stage 2.
      {"resident_head",
       [&](auto& r) {
         stage(3)(r);
         r.resident_parameters = 16;
       },
       {dp, sums, reduce, {kZero, kAllGather, 7, (2 * 3072 - 64) * 2}}},
      {"resident_all",
       [&](auto& r) {
         stage(3)(r);
         r.resident_parameters = 1024;
       },
       {dp, sums, reduce, {kZero, kAllGather, 4, 3072 * 2}}},
      {"each_micro_batch",
       [&](auto& r) {
         stage(3)(r);
         r.micro_batches = 3;
         r.gradient_reduction = GradientReduction::kPerMicroBatch;
       },
       {dp,
        sums,
        {kZero, kReduceScatter, 3 * 4, 3 * 3072 * 4},
        {kZero, kAllGather, 3 * 7, 3 * (2 * 3072 - 64) * 2}}},
      // Not tied: the head's matrix of 101 * 8 elements as well, once.
      {"not_tied",
       [&](auto& r) {
         stage(3)(r);
         r.model.tied_embeddings = false;
       },
       {dp,
        sums,
        {kZero, kReduceScatter, 4, (3072 + 832) * 4},
        {kZero, kAllGather, 1 + 4 + 1, (960 + 4 * 1024 + 896) * 2}}},
      // Its weight gradients restore the layers once more.
      {"zero_bubble_recompute",
       [&](auto& r) {
         stage(3)(r);
         r.schedule = PipelineSchedule::kZeroBubbleH1;
         r.recompute = RecomputeKind::kFull;
       },
       {dp, sums, reduce, {kZero, kAllGather, 2 + 6 + 1, (2 * 960 + 6 * 1024 + 64) * 2}}},
  });
}

// M = 12 rows; K and V of a rank have 12 * 16 elements.
TEST(StepTraffic, ContextParallel) {
  const Expected dp{kDp, kAllReduce, 1, 8}, zero{kZero, kAllReduce, 3, 28 + 8},
      reduce{kZero, kReduceScatter, 4, 3072 * 4}, gather{kZero, kAllGather, 4, 3072 * 4};
  Check({
      {"ring",
       [](auto& r) { r.mesh.cp = 2; },
       {dp, {kCp, kSend, 12, 12 * 768}, {kCp, kRecv, 12, 12 * 768}, zero, reduce, gather}},
      {"ring_bf16",
       [](auto& r) {
         r.mesh.cp = 2;
         r.element_bytes = 2;
       },
       {dp,
        {kCp, kSend, 12, 8 * 384 + 4 * 768},
        {kCp, kRecv, 12, 8 * 384 + 4 * 768},
        zero,
        reduce,
        gather}},
      {"ring_recompute_in_both_halves",
       [](auto& r) {
         r.mesh.cp = 2;
         r.recompute = RecomputeKind::kAttention;
         r.schedule = PipelineSchedule::kZeroBubbleH1;
       },
       {dp, {kCp, kSend, 20, 20 * 768}, {kCp, kRecv, 20, 20 * 768}, zero, reduce, gather}},
      {"all_gather",
       [](auto& r) {
         r.mesh.cp = 2;
         r.context_parallel = ContextParallelAttention::kAllGather;
       },
       {dp,
        {kCp, kAllGather, 8, 8 * 1536},
        {kCp, kReduceScatter, 4, 4 * 1536},
        zero,
        reduce,
        gather}},
      {"ulysses",
       [](auto& r) {
         r.mesh.cp = 2;
         r.context_parallel = ContextParallelAttention::kUlysses;
       },
       {dp, {kCp, kAllToAll, 16, 4 * (1152 + 384 + 1920 + 1152)}, zero, reduce, gather}},
      // One kv head for two ranks. Embedding 832, layer 224 + 800, head 32, which pads to 64.
      {"ulysses_repeats_kv_heads",
       [](auto& r) {
         r.model.is_llama = true;
         r.model.kv_heads = 1;
         r.mesh.cp = 2;
         r.context_parallel = ContextParallelAttention::kUlysses;
       },
       {dp,
        {kCp, kAllToAll, 20, 4 * (768 + 384 + 1536 + 384 + 384)},
        zero,
        {kZero, kReduceScatter, 4, (832 + 2 * 1024 + 64) * 4},
        {kZero, kAllGather, 4, (832 + 2 * 1024 + 64) * 4}}},
  });
}

TEST(StepTraffic, AbsurdSizesStopAtTheLargestCount) {
  TrafficRequest request = Gpt2();
  request.mesh.cp = 2;
  request.context_parallel = ContextParallelAttention::kUlysses;
  request.model.heads = request.model.kv_heads = request.model.head_size = 65536;
  request.sequence_length = 1 << 20;
  request.micro_batch_size = 128;
  request.chunks = {{{0, 1024}, true, true}};
  EXPECT_EQ(PredictStepTraffic(request).of(kCp, kAllToAll).bytes,
            std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace tessera::plan
