#include "kernels/embedding.h"

#include "kernels/conformance.h"
#include "kernels/elementwise.h"

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
                output, {}, *stream_)
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
                                    d_positions, {}, *stream_)
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

// A table in parts, the last one padded beyond the ids: the parts' rows and gradients are the whole
// table's, and positions added after are the same bits as positions added with the tokens.
TEST_P(EmbeddingTest, PartsOfATable) {
  constexpr int64_t kVocab = 11, kPart = 4, kTime = 5, kChannels = 19, kRows = 2 * kTime;
  for (const auto& [dtype, sums] : kAccumulations) {
    const std::vector<float> tokens = RandomOf(dtype, 3 * kPart * kChannels);
    const std::vector<float> positions = RandomOf(dtype, kTime * kChannels);
    const std::vector<float> start = RandomOf(sums, 3 * kPart * kChannels);
    const Tensor ids = PutIds(RandomIds(kRows, 0, kVocab - 1), {2, kTime});
    const Tensor dy = Put(RandomOf(dtype, kRows * kChannels), {kRows, kChannels}, dtype);
    const Tensor table = Put(tokens, {3 * kPart, kChannels}, dtype);
    const Tensor position_table = Put(positions, {kTime, kChannels}, dtype);
    const Tensor whole = New({kRows, kChannels}, dtype), sum = New({kRows, kChannels}, dtype);
    const Tensor d_whole = Put(start, {3 * kPart, kChannels}, sums);
    const Tensor d_parts = Put(start, {3 * kPart, kChannels}, sums);
    ASSERT_TRUE(EmbeddingForward(ids, table, position_table, whole, {}, *stream_).ok());
    ASSERT_TRUE(EmbeddingBackward(ids, dy, d_whole, Tensor(), {}, *stream_).ok());
    ASSERT_TRUE(device_->SetZero(sum, *stream_).ok());
    for (int64_t part = 0; part < 3; ++part) {
      EmbeddingOptions options;
      options.first_id = part * kPart;
      options.num_ids = kVocab;
      const Tensor rows = New({kRows, kChannels}, dtype);
      ASSERT_TRUE(
          EmbeddingForward(ids, table.Rows(part * kPart, kPart), Tensor(), rows, options, *stream_)
              .ok());
      ASSERT_TRUE(Add(sum, rows, sum, *stream_).ok());
      ASSERT_TRUE(
          EmbeddingBackward(ids, dy, d_parts.Rows(part * kPart, kPart), Tensor(), options, *stream_)
              .ok());
    }
    ASSERT_TRUE(AddPositions(position_table, Tensor(), kTime, sum, *stream_).ok());
    EXPECT_EQ(Get(sum), Get(whole));
    EXPECT_EQ(Get(d_parts), Get(d_whole));
  }
}

// Rows of any position, the same in every sequence or each row its own; gradients in the order of
// rows.
TEST_P(EmbeddingTest, PositionsOfRows) {
  constexpr int64_t kTime = 7, kPositions = 9, kChannels = 21, kRows = 3 * kTime;
  for (const auto& [dtype, sums] : kAccumulations) {
    for (const int64_t count : {kTime, kRows}) {
      const std::vector<float> tokens = RandomOf(dtype, 2 * kChannels);
      const std::vector<float> table = RandomOf(dtype, kPositions * kChannels);
      const std::vector<float> dy = RandomOf(dtype, kRows * kChannels);
      const std::vector<int32_t> ids = RandomIds(kRows, 0, 1);
      const std::vector<int32_t> positions = RandomIds(count, 0, kPositions - 1);
      std::vector<float> gradient = RandomOf(sums, kPositions * kChannels);
      EmbeddingOptions options;
      options.positions = PutIds(positions, {count});
      const Tensor position_table = Put(table, {kPositions, kChannels}, dtype);
      const Tensor output = New({kRows, kChannels}, dtype);
      const Tensor d_positions = Put(gradient, {kPositions, kChannels}, sums);
      ASSERT_TRUE(EmbeddingForward(PutIds(ids, {3, kTime}), Put(tokens, {2, kChannels}, dtype),
                                   position_table, output, options, *stream_)
                      .ok());
      ASSERT_TRUE(AddPositionsBackward(Put(dy, {kRows, kChannels}, dtype), options.positions, 0,
                                       d_positions, *stream_)
                      .ok());
      const std::vector<float> result = Get(output);
      for (int64_t i = 0; i < kRows * kChannels; ++i) {
        const int64_t row = i / kChannels, c = i % kChannels;
        const int64_t position = positions[row % count] * kChannels + c;
        ASSERT_EQ(result[i], RoundTo(dtype, tokens[ids[row] * kChannels + c] + table[position]));
        gradient[position] += dy[i];
      }
      for (float& value : gradient) value = RoundTo(sums, value);
      EXPECT_EQ(Get(d_positions), gradient);
    }
  }
}

TEST_P(EmbeddingTest, RefusesPartsAndPositions) {
  const Tensor table = New({5, 4}), output = New({2, 4});
  const auto forward = [&](int32_t id, const EmbeddingOptions& options, const Tensor& positions) {
    return EmbeddingForward(PutIds(std::vector<int32_t>{0, id}, {1, 2}), table, positions, output,
                            options, *stream_)
        .code();
  };
  EmbeddingOptions options;
  options.first_id = 5;
  EXPECT_EQ(forward(1, options, Tensor()), absl::StatusCode::kInvalidArgument);  // of how many?
  options.num_ids = 9;
  EXPECT_EQ(forward(8, options, Tensor()), absl::StatusCode::kOk);
  EXPECT_EQ(forward(9, options, Tensor()), absl::StatusCode::kInvalidArgument);
  options.positions = PutIds(std::vector<int32_t>{1, 5}, {2});
  EXPECT_EQ(forward(8, options, table), absl::StatusCode::kInvalidArgument);
  options.positions = PutIds(std::vector<int32_t>{1, 2, 3}, {3});
  EXPECT_EQ(forward(8, options, table), absl::StatusCode::kInvalidArgument);
}

TEST_P(EmbeddingTest, RefusesIdsAndSizes) {
  const Tensor table = New({5, 4}), positions = New({2, 4}), output = New({2, 4});
  for (const int32_t bad : {-1, 5}) {
    absl::Status status = EmbeddingForward(PutIds(std::vector<int32_t>{0, bad}, {1, 2}), table,
                                           positions, output, {}, *stream_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(std::to_string(bad)), std::string::npos);
  }
  EXPECT_EQ(EmbeddingForward(PutIds(std::vector<int32_t>{0, 1, 2}, {1, 3}), table, positions,
                             New({3, 4}), {}, *stream_)
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(EmbeddingTest);

}  // namespace
}  // namespace tessera
