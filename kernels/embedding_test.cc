#include "kernels/embedding.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class EmbeddingTest : public KernelTest {};

struct Sizes {
  int64_t batch, time, vocab, positions, channels;
};
constexpr Sizes kSizes[] = {{1, 1, 2, 1, 1}, {3, 37, 257, 41, 24}, {2, 5, 11, 5, 131}};

// One addition per element: correctly rounded, so compared exactly.
TEST_P(EmbeddingTest, ForwardAddsTokenAndPosition) {
  for (const DType dtype : kFloatTypes) {
    for (const Sizes& s : kSizes) {
      const std::vector<float> tokens = RandomOf(dtype, s.vocab * s.channels);
      const std::vector<float> positions = RandomOf(dtype, s.positions * s.channels);
      const std::vector<int32_t> ids = RandomIds(s.batch * s.time, 0, s.vocab - 1);
      for (const bool with_positions : {true, false}) {
        const Tensor output = New({s.batch * s.time, s.channels}, dtype);
        ASSERT_TRUE(
            EmbeddingForward(
                PutIds(ids, {s.batch, s.time}), Put(tokens, {s.vocab, s.channels}, dtype),
                with_positions ? Put(positions, {s.positions, s.channels}, dtype) : Tensor(),
                output, *stream_)
                .ok());
        const std::vector<float> result = Get(output);
        for (int64_t i = 0; i < s.batch * s.time; ++i) {
          for (int64_t c = 0; c < s.channels; ++c) {
            const float position = with_positions ? positions[i % s.time * s.channels + c] : 0;
            ASSERT_EQ(result[i * s.channels + c],
                      RoundTo(dtype, tokens[ids[i] * s.channels + c] + position));
          }
        }
      }
    }
  }
}

// Sums in the stated order: the reference adds the same fp32 values in that order, and rounds at
// the end, exactly.
TEST_P(EmbeddingTest, BackwardAddsRowsInOrder) {
  for (const auto& [dtype, sums] : kAccumulations) {
    for (const Sizes& s : kSizes) {
      std::vector<float> tokens = RandomOf(sums, s.vocab * s.channels);
      std::vector<float> positions = RandomOf(sums, s.positions * s.channels);
      const std::vector<float> gradient = RandomOf(dtype, s.batch * s.time * s.channels);
      // Few ids, so that many rows share one.
      const std::vector<int32_t> ids =
          RandomIds(s.batch * s.time, 0, std::min<int>(s.vocab, 9) - 1);
      const Tensor d_tokens = Put(tokens, {s.vocab, s.channels}, sums);
      const Tensor d_positions = Put(positions, {s.positions, s.channels}, sums);
      ASSERT_TRUE(EmbeddingBackward(PutIds(ids, {s.batch, s.time}),
                                    Put(gradient, {s.batch * s.time, s.channels}, dtype), d_tokens,
                                    d_positions, *stream_)
                      .ok());
      for (int64_t i = 0; i < s.batch * s.time; ++i) {
        for (int64_t c = 0; c < s.channels; ++c) {
          tokens[ids[i] * s.channels + c] += gradient[i * s.channels + c];
          positions[i % s.time * s.channels + c] += gradient[i * s.channels + c];
        }
      }
      for (float& value : tokens) value = RoundTo(sums, value);
      for (float& value : positions) value = RoundTo(sums, value);
      EXPECT_EQ(Get(d_tokens), tokens);
      EXPECT_EQ(Get(d_positions), positions);
    }
  }
}

TEST_P(EmbeddingTest, RefusesIdsAndSizes) {
  const Tensor table = New({5, 4}), positions = New({2, 4}), output = New({2, 4});
  for (const int32_t bad : {-1, 5}) {
    absl::Status status = EmbeddingForward(PutIds(std::vector<int32_t>{0, bad}, {1, 2}), table,
                                           positions, output, *stream_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(std::to_string(bad)), std::string::npos);
  }
  EXPECT_EQ(EmbeddingForward(PutIds(std::vector<int32_t>{0, 1, 2}, {1, 3}), table, positions,
                             New({3, 4}), *stream_)
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(EmbeddingTest);

}  // namespace
}  // namespace tessera
