#include "plan/stage_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::plan {
namespace {

std::vector<int> Counts(int layers, int chunks) {
  auto ranges = PartitionLayers(layers, chunks, {});
  EXPECT_TRUE(ranges.ok()) << ranges.status();
  std::vector<int> counts;
  for (const LayerRange& range : *ranges) counts.push_back(range.count);
  return counts;
}

TEST(StagePartition, BalancedWithLargerOnesInTheMiddle) {
  EXPECT_EQ(Counts(8, 4), (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(Counts(9, 4), (std::vector<int>{2, 3, 2, 2}));
  EXPECT_EQ(Counts(10, 4), (std::vector<int>{2, 3, 3, 2}));
  EXPECT_EQ(Counts(11, 4), (std::vector<int>{3, 3, 3, 2}));
  EXPECT_EQ(Counts(3, 2), (std::vector<int>{2, 1}));
  EXPECT_EQ(Counts(11, 5), (std::vector<int>{2, 2, 3, 2, 2}));
  EXPECT_EQ(Counts(7, 1), (std::vector<int>{7}));
}

TEST(StagePartition, BalancedRules) {
  for (int chunks = 1; chunks <= 24; ++chunks) {
    for (int layers = chunks; layers <= 80; ++layers) {
      auto ranges = PartitionLayers(layers, chunks, {});
      ASSERT_TRUE(ranges.ok());
      int next = 0;
      for (const LayerRange& range : *ranges) {
        EXPECT_EQ(range.first, next);
        next = range.end();
      }
      EXPECT_EQ(next, layers);
      const std::vector<int> counts = Counts(layers, chunks);
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 1);
      EXPECT_EQ(counts.back(), *least);
      const bool first_must_be_larger = layers % chunks == chunks - 1;
      if (!first_must_be_larger) {
        EXPECT_EQ(counts.front(), *least);
      }
    }
  }
}

TEST(StagePartition, StagesTakeEveryPthChunk) {
  auto stages = PartitionStages(9, 2, 2, {{1, 2, 4, 2}});
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
    auto result = PartitionStages(test.layers, test.stages, test.chunks, test.counts);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(result.status().message(), test.message);
  }
  EXPECT_EQ(PartitionLayers(3, 4, {}).status().message(),
            "layers: 3: fewer than the 4 chunks (stages * chunks)");
  EXPECT_EQ(PartitionLayers(3, 0, {}).status().message(), "chunks_total: 0: must be at least 1");
}

}  // namespace
}  // namespace tessera::plan
