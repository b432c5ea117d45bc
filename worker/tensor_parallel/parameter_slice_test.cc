#include "worker/tensor_parallel/parameter_slice.h"

#include "gtest/gtest.h"
#include "worker/tensor_parallel/layout.h"

namespace tessera {
namespace {

// Whole index of every local element; -1 for padding.
std::vector<int64_t> WholeIndices(const ParameterSlice& slice) {
  std::vector<int64_t> indices(slice.num_rows() * slice.num_columns(), -1);
  EXPECT_TRUE(ForEachRun(slice, [&](const SliceRun& run) {
                for (int64_t i = 0; i < run.count; ++i) {
                  EXPECT_EQ(indices[run.local_begin + i], -1);
                  indices[run.local_begin + i] = run.whole_begin + i;
                }
                return absl::OkStatus();
              }).ok());
  return indices;
}

using Indices = std::vector<int64_t>;

TEST(ParameterSlice, WholeIsOneRun) {
  EXPECT_EQ(WholeIndices(WholeSlice({2, 3})), (Indices{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(LocalShape(WholeSlice({5}), {5}), Shape({5}));
}

TEST(ParameterSlice, RowsWithPadding) {
  const ParameterSlice slice = RowSlice({4, 2}, {{3, 1}}, 1);
  EXPECT_EQ(WholeIndices(slice), (Indices{6, 7, -1, -1}));
  EXPECT_EQ(LocalShape(slice, {4, 2}), Shape({2, 2}));
}

// GPT-2's packed q | k | v of 2 channels each, the second of two ranks.
TEST(ParameterSlice, SeveralColumnRanges) {
  const std::vector<IndexRange> columns = {{1, 1}, {3, 1}, {5, 1}};
  EXPECT_EQ(WholeIndices(ColumnSlice({2, 6}, columns)), (Indices{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(WholeIndices(ColumnSlice({6}, columns)), (Indices{1, 3, 5}));
}

TEST(TensorParallelLayout, VocabularyOfAnySizeIsCoveredOnce) {
  for (const int64_t vocab : {2, 5, 9, 257, 50257}) {
    for (const int tp : {1, 2, 3, 4, 8}) {
      int64_t next = 0;
      for (int rank = 0; rank < tp; ++rank) {
        const VocabularyPart part = VocabularyPartOf({tp, rank, false}, vocab);
        EXPECT_EQ(part.ids.count + part.padding, (vocab + tp - 1) / tp);
        EXPECT_EQ(part.ids.begin, next);
        next += part.ids.count;
      }
      EXPECT_EQ(next, vocab);
    }
  }
}

TEST(TensorParallelLayout, KvHeadsAreReplicatedWhereTheyAreFewerThanRanks) {
  const auto of = [](int rank) { return KvHeadsOf({4, rank, false}, 2); };
  EXPECT_EQ(of(0).heads.begin, 0);
  EXPECT_EQ(of(1).heads.begin, 0);
  EXPECT_EQ(of(2).heads.begin, 1);
  EXPECT_EQ(of(3).replicas, 2);
  EXPECT_TRUE(of(2).is_first_replica);
  EXPECT_FALSE(of(3).is_first_replica);
  EXPECT_EQ(KvHeadsOf({2, 1, false}, 4).heads.begin, 2);
}

}  // namespace
}  // namespace tessera
