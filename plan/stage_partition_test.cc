#include "plan/stage_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::plan {
namespace {

// Layers of each global chunk.
std::vector<int> Counts(int layers, int stages, int chunks = 1, const LayerCosts& costs = {}) {
  const auto partition = PartitionStages(layers, stages, chunks, {}, costs);
  EXPECT_TRUE(partition.ok()) << partition.status();
  std::vector<int> counts;
  for (int g = 0; g < stages * chunks; ++g) {
    counts.push_back((*partition)[g % stages][g / stages].layers.count);
  }
  return counts;
}

TEST(StagePartition, BalancedWithLargerOnesInTheMiddle) {
  EXPECT_EQ(Counts(8, 4), (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(Counts(9, 4), (std::vector<int>{2, 3, 2, 2}));
  EXPECT_EQ(Counts(10, 4), (std::vector<int>{2, 3, 3, 2}));
  EXPECT_EQ(Counts(11, 4), (std::vector<int>{3, 3, 3, 2}));
  EXPECT_EQ(Counts(3, 2), (std::vector<int>{2, 1}));
  EXPECT_EQ(Counts(11, 5), (std::vector<int>{2, 2, 3, 2, 2}));
  EXPECT_EQ(Counts(14, 6), (std::vector<int>{2, 2, 3, 3, 2, 2}));
  EXPECT_EQ(Counts(7, 1), (std::vector<int>{7}));
  EXPECT_EQ(Counts(10, 2, 2), (std::vector<int>{2, 3, 3, 2}));
}

TEST(StagePartition, BalancedRules) {
  for (int stages = 1; stages <= 24; ++stages) {
    for (int layers = stages; layers <= 80; ++layers) {
      const auto partition = PartitionStages(layers, stages, 1, {}, {});
      ASSERT_TRUE(partition.ok());
      int next = 0;
      for (const std::vector<StageChunk>& stage : *partition) {
        EXPECT_EQ(stage[0].layers.first, next);
        next = stage[0].layers.end();
      }
      EXPECT_EQ(next, layers);
      const std::vector<int> counts = Counts(layers, stages);
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 1);
      EXPECT_EQ(counts.back(), *least);
      const bool first_must_be_larger = layers % stages == stages - 1;
      if (!first_must_be_larger) {
        EXPECT_EQ(counts.front(), *least);
      }
    }
  }
}

// GPT-2 124M: a layer has 7.1 million multiply-adds in its matrices and 0.2 in attention over 256
// tokens, the head 38.6 million: 5.3 layers.
TEST(StagePartition, TheHeadCounts) {
  const ModelSizes gpt2{.vocab_size = 50257,
                        .context_length = 1024,
                        .layers = 12,
                        .heads = 12,
                        .kv_heads = 12,
                        .head_size = 64,
                        .hidden_size = 768,
                        .intermediate_size = 3072,
                        .tied_embeddings = true};
  const LayerCosts costs = LayerCostsOf(gpt2, 256);
  EXPECT_EQ(costs.layer, 768 * 2304 + 768 * 768 + 768 * 256 + 2 * 768 * 3072);
  EXPECT_EQ(costs.head, 768 * 50257);
  EXPECT_EQ(Counts(12, 2, 1, costs), (std::vector<int>{9, 3}));
  EXPECT_EQ(Counts(12, 3, 1, costs), (std::vector<int>{5, 6, 1}));
  // 4 + 5 and 1 + 2 + 5.3.
  EXPECT_EQ(Counts(12, 2, 2, costs), (std::vector<int>{4, 2, 5, 1}));
}

// No other partition has a cheaper most expensive stage.
TEST(StagePartition, BalancedIsOptimal) {
  for (const int head : {0, 1, 2, 3, 7, 20}) {
    for (int layers = 3; layers <= 12; ++layers) {
      const std::vector<int> counts = Counts(layers, 3, 1, {.layer = 2, .head = head});
      const int found = std::max({2 * counts[0], 2 * counts[1], 2 * counts[2] + head});
      for (int a = 1; a < layers; ++a) {
        for (int b = 1; a + b < layers; ++b) {
          EXPECT_LE(found, std::max({2 * a, 2 * b, 2 * (layers - a - b) + head}));
        }
      }
    }
  }
}

TEST(StagePartition, StagesTakeEveryPthChunk) {
  auto stages = PartitionStages(9, 2, 2, {{1, 2, 4, 2}}, {});
  ASSERT_TRUE(stages.ok()) << stages.status();
  EXPECT_EQ((*stages)[0][0].layers, (LayerRange{0, 1}));
  EXPECT_EQ((*stages)[1][0].layers, (LayerRange{1, 2}));
  EXPECT_EQ((*stages)[0][1].layers, (LayerRange{3, 4}));
  EXPECT_EQ((*stages)[1][1].layers, (LayerRange{7, 2}));
  for (int pp_rank : {0, 1}) {
    for (int chunk : {0, 1}) {
      EXPECT_EQ((*stages)[pp_rank][chunk].has_embedding, pp_rank == 0 && chunk == 0);
      EXPECT_EQ((*stages)[pp_rank][chunk].has_head, pp_rank == 1 && chunk == 1);
    }
  }
}

TEST(StagePartition, ErrorsNameNumbers) {
  struct Case {
    int layers, stages, chunks;
    std::vector<int> counts;
    std::string message;
  };
  const Case cases[] = {
      {8, 0, 1, {}, "stages: 0: must be at least 1"},
      {8, 1, 0, {}, "chunks: 0: must be at least 1"},
      {3, 4, 1, {}, "stages: 4: more than the 3 layers"},
      {3, 2, 2, {}, "layers: 3: fewer than the 4 chunks (2 stages * 2 chunks)"},
      {8, 2, 1, {8}, "layers_per_chunk: [8]: has 1 counts for 2 chunks (stages * chunks)"},
      {8, 2, 1, {8, 0}, "layers_per_chunk: [8, 0]: each must be at least 1"},
      {8, 2, 1, {3, 4}, "layers_per_chunk: [3, 4]: sums to 7, the model has 8 layers"},
  };
  for (const Case& test : cases) {
    auto result = PartitionStages(test.layers, test.stages, test.chunks, test.counts, {});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(result.status().message(), test.message);
  }
}

}  // namespace
}  // namespace tessera::plan
