#include "worker/data/sample_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tessera {
namespace {

TEST(SampleOrder, EveryEpochIsAPermutationOfTheWindows) {
  for (int64_t windows : {1, 2, 3, 7, 64, 65, 1000}) {
    const int32_t length = 5;
    SampleOrder order(windows * length + 1, length, 42);
    ASSERT_EQ(order.windows_per_epoch(), windows);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> begins;
      for (int64_t k = 0; k < windows; ++k) {
        const int64_t begin = order.WindowBegin(epoch * windows + k);
        EXPECT_EQ(begin % length, 0);
        EXPECT_LE(begin + length + 1, windows * length + 1);
        begins.insert(begin);
      }
      EXPECT_EQ(static_cast<int64_t>(begins.size()), windows) << windows << " epoch " << epoch;
    }
  }
}

TEST(SampleOrder, CursorIsTheSampleInEpochs) {
  const SampleOrder order(7 * 5 + 1, 5, 42);
  EXPECT_EQ(order.CursorOf(0), (SampleCursor{0, 0}));
  EXPECT_EQ(order.CursorOf(6), (SampleCursor{0, 6}));
  EXPECT_EQ(order.CursorOf(7), (SampleCursor{1, 0}));
  for (int64_t sample = 0; sample < 30; ++sample) {
    const SampleCursor cursor = order.CursorOf(sample);
    EXPECT_EQ(order.SampleOf(cursor), sample);
    EXPECT_EQ(order.WindowBegin(cursor), order.WindowBegin(sample));
  }
}

TEST(SampleOrder, DependsOnSeedAndEpoch) {
  std::vector<std::vector<int64_t>> orders;
  for (uint64_t seed : {0, 1}) {
    SampleOrder order(1001, 10, seed);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> begins;
      for (int64_t k = 0; k < 100; ++k) begins.push_back(order.WindowBegin(epoch * 100 + k));
      orders.push_back(begins);
    }
  }
  EXPECT_EQ(std::set(orders.begin(), orders.end()).size(), 4u);
}

class Counting : public TokenSource {
 public:
  int64_t num_tokens() const override { return 100; }
  void Read(int64_t begin, absl::Span<int32_t> tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((begin + i) % 4);
  }
};

TEST(FillSequence, TargetsAreTheNextTokensAndIgnoredOnesAreMasked) {
  std::vector<int32_t> inputs(5), targets(5);
  FillSequence(Counting(), 2, {3, 0}, absl::MakeSpan(inputs), absl::MakeSpan(targets));
  EXPECT_EQ(inputs, (std::vector<int32_t>{2, 3, 0, 1, 2}));
  EXPECT_EQ(targets, (std::vector<int32_t>{-1, -1, 1, 2, -1}));
  EXPECT_EQ(CountValidTargets(Counting(), 2, 5, {3, 0}), 2);
  EXPECT_EQ(CountValidTargets(Counting(), 2, 5, {}), 5);
}

}  // namespace
}  // namespace tessera
