// Generation token by token, and a prompt by blocks, from a cache over a cp group, against one
// rank's causal attention over the whole sequence.
#include "worker/context_parallel/cache_attention.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/conformance.h"
#include "worker/context_parallel/cache_shard.h"
#include "worker/context_parallel/conformance_ranks.h"

namespace tessera {
namespace {

constexpr int64_t kHeadSize = 6, kBlock = 8;

AttentionShape Shape4(int64_t time, int64_t kv_heads) {
  AttentionShape shape;
  shape.batch = 1;
  shape.time = time;
  shape.heads = 4;
  shape.kv_heads = kv_heads;
  shape.head_size = kHeadSize;
  shape.scale = 0.4f;
  return shape;
}

class CacheAttentionTest : public testing::Test, public KernelRig {
 protected:
  CacheAttentionTest() : KernelRig(CpuBackend(1)) {}
};

// As context_attention_test.cc: two fp32 results of 2e-5 each and cp - 1 merges; a 16-bit output is
// rounded once.
constexpr double kError = 2 * 2e-5 + 1e-5;

TEST_F(CacheAttentionTest, AgainstOneRank) {
  constexpr int64_t kPrompt = 21, kLength = 45;
  for (const DType dtype : kFloatTypes) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      const AttentionShape whole = Shape4(kLength, kv_heads);
      const int64_t width = 4 * kHeadSize, kv_width = kv_heads * kHeadSize;
      const std::vector<float> q = RandomOf(dtype, kLength * width);
      const std::vector<float> k = RandomOf(dtype, kLength * kv_width);
      const std::vector<float> v = RandomOf(dtype, kLength * kv_width);
      const Tensor wanted = New({kLength, width});
      ASSERT_TRUE(AttentionForward(whole, Put(q, {kLength, width}), Put(k, {kLength, kv_width}),
                                   Put(v, {kLength, kv_width}), wanted, New({1, 4, kLength}),
                                   New({AttentionWorkspaceBytes(whole, *device_)}, DType::kUInt8),
                                   *stream_)
                      .ok());
      const std::vector<float> expected = Get(wanted);
      for (const int cp_size : {1, 2, 4}) {
        const CacheShard shard{cp_size, kBlock};
        std::vector<std::vector<float>> outputs(cp_size);
        MakeInProcessWorld()->Run(cp_size, [&](TestRank& rank) {
          const std::unique_ptr<Communicator> group = rank.Join(rank.Spec("cp"));
          ASSERT_NE(group, nullptr);
          RankTensors tensors(rank);
          AttentionShape limits = Shape4(kBlock, kv_heads);
          limits.key_rows = shard.RowsPerRank(kLength);
          auto attention = CacheAttention::Create(limits, dtype, group.get(), *rank.device);
          ASSERT_TRUE(attention.ok()) << attention.status();
          const Tensor keys = tensors.New(dtype, {limits.key_rows, kv_width});
          const Tensor values = tensors.New(dtype, {limits.key_rows, kv_width});
          for (int64_t length = 0; length < kLength;) {
            const int64_t time = shard.NextTokens(length, length < kPrompt ? kPrompt - length : 1);
            const bool owns = shard.OwnerOf(length) == rank.index;
            if (owns) {
              const int64_t row = shard.RowOf(length);
              tensors.Set(&k[length * kv_width], keys.Rows(row, time));
              tensors.Set(&v[length * kv_width], values.Rows(row, time));
            }
            const Tensor queries = tensors.New(dtype, {time, width});
            const Tensor output = tensors.New(dtype, {time, width});
            tensors.Set(&q[length * width], queries);
            const CommunicatorStats before = group->stats();
            const absl::Status status =
                (*attention)
                    ->Forward(queries, keys, values, shard.KeysOf(rank.index, length + time), owns,
                              output, *rank.stream);
            ASSERT_TRUE(status.ok()) << status;
            ExpectTraffic(Minus(group->stats(), before),
                          PredictCacheAttention(limits, time, cp_size));
            const std::vector<float> rows = tensors.Get(output);
            outputs[rank.index].insert(outputs[rank.index].end(), rows.begin(), rows.end());
            length += time;
          }
        });
        for (int rank = 0; rank < cp_size; ++rank) {
          ASSERT_EQ(outputs[rank], outputs[0]) << "the same bits on all ranks";
        }
        ASSERT_EQ(outputs[0].size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(outputs[0][i], expected[i], kError + StoreError(dtype, expected[i]))
              << "cp " << cp_size << " token " << i / width;
        }
      }
    }
  }
}

// A rank's cache and workspace are 1 / cp of one rank's; the parts that are exchanged do not grow
// with the cache, and are small beside it.
TEST_F(CacheAttentionTest, MemoryFallsWithTheGroup) {
  constexpr int64_t kCapacity = 16384, kColumns = 2 * kHeadSize;
  std::vector<int64_t> bytes;
  for (const int cp_size : {1, 2, 4}) {
    const CacheShard shard{cp_size, 64};
    AttentionShape limits = Shape4(1, 2);
    limits.key_rows = shard.RowsPerRank(kCapacity);
    MakeInProcessWorld()->Run(cp_size, [&](TestRank& rank) {
      const std::unique_ptr<Communicator> group = rank.Join(rank.Spec("cp"));
      ASSERT_NE(group, nullptr);
      RankTensors tensors(rank);
      tensors.New(DType::kBFloat16, {2 * limits.key_rows, kColumns});
      const auto attention =
          CacheAttention::Create(limits, DType::kBFloat16, group.get(), *rank.device);
      ASSERT_TRUE(attention.ok()) << attention.status();
      if (rank.index == 0) bytes.push_back(rank.device->arena().usage().current_bytes);
    });
  }
  ASSERT_EQ(bytes.size(), 3u);
  EXPECT_NEAR(static_cast<double>(bytes[0]) / bytes[1], 2, 0.01);
  EXPECT_NEAR(static_cast<double>(bytes[0]) / bytes[2], 4, 0.02);
}

TEST_F(CacheAttentionTest, RefusesWhatDoesNotFit) {
  MakeInProcessWorld()->Run(1, [](TestRank& rank) {
    const std::unique_ptr<Communicator> group = rank.Join(rank.Spec("cp"));
    ASSERT_NE(group, nullptr);
    AttentionShape limits = Shape4(2, 2);
    EXPECT_EQ(
        CacheAttention::Create(limits, DType::kFloat32, group.get(), *rank.device).status().code(),
        absl::StatusCode::kInvalidArgument);
    limits.key_rows = 3;
    const auto attention =
        CacheAttention::Create(limits, DType::kFloat32, group.get(), *rank.device);
    ASSERT_TRUE(attention.ok()) << attention.status();
    RankTensors tensors(rank);
    const auto forward = [&](int64_t time, int64_t keys, bool owns) {
      const Tensor q = tensors.New(DType::kFloat32, {time, 4 * kHeadSize});
      const Tensor k = tensors.New(DType::kFloat32, {3, 2 * kHeadSize});
      return (*attention)->Forward(q, k, k, keys, owns, q, *rank.stream).code();
    };
    EXPECT_EQ(forward(2, 3, true), absl::StatusCode::kOk);
    EXPECT_EQ(forward(2, 0, false), absl::StatusCode::kOk);
    EXPECT_EQ(forward(2, 1, true), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(forward(2, 4, true), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(forward(3, 3, true), absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace tessera
