#include "worker/context_parallel/cache_shard.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

// Token by token: each goes to its owner's next row.
TEST(CacheShard, DealsBlocksInTurn) {
  for (const CacheShard& shard : {CacheShard{1, 4}, {2, 1}, {3, 5}, {4, 64}}) {
    std::vector<int64_t> rows(shard.cp_size);
    for (int64_t position = 0; position < 1000; ++position) {
      for (int rank = 0; rank < shard.cp_size; ++rank) {
        ASSERT_EQ(shard.KeysOf(rank, position), rows[rank]);
        ASSERT_LE(rows[rank], shard.RowsPerRank(position));
      }
      ASSERT_EQ(shard.RowsPerRank(position), rows[0]);
      ASSERT_EQ(shard.RowOf(position), rows[shard.OwnerOf(position)]++);
    }
    EXPECT_LE(shard.RowsPerRank(1000), 1000 / shard.cp_size + shard.block_tokens);
  }
}

TEST(CacheShard, NextTokensHaveOneOwner) {
  const CacheShard shard{2, 4};
  EXPECT_EQ(shard.NextTokens(0, 10), 4);
  EXPECT_EQ(shard.NextTokens(5, 10), 3);
  EXPECT_EQ(shard.NextTokens(5, 2), 2);
  for (int64_t length = 0; length < 20; ++length) {
    EXPECT_EQ(shard.OwnerOf(length), shard.OwnerOf(length + shard.NextTokens(length, 10) - 1));
  }
}

}  // namespace
}  // namespace tessera
