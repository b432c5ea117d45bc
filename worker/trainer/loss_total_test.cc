#include "worker/trainer/loss_total.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

TEST(LossTotal, MeanOverValidTargets) {
  LossTotal total;
  total.AddSequence(std::vector<float>{1.5f, 0, 2.5f}, 2);
  total.AddSequence(std::vector<float>{0, 0, 0}, 0);
  total.AddSequence(std::vector<float>{2, 3, 0}, 2);
  EXPECT_EQ(total.valid_targets(), 4);
  EXPECT_DOUBLE_EQ(total.Mean(), 2.25);
}

TEST(LossTotal, OrderChangesNoBit) {
  std::vector<std::vector<float>> sequences;
  for (int i = 0; i < 50; ++i) {
    sequences.push_back({0.1f * static_cast<float>(i), std::sqrt(static_cast<float>(i)), 3.3f});
  }
  LossTotal forward, backward;
  for (int i = 0; i < 50; ++i) {
    forward.AddSequence(sequences[i], 3);
    backward.AddSequence(sequences[49 - i], 3);
  }
  EXPECT_EQ(forward.Mean(), backward.Mean());
}

TEST(LossTotal, NotFiniteStaysSo) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    LossTotal total;
    total.AddSequence(std::vector<float>{1, bad}, 2);
    total.AddSequence(std::vector<float>{1, 1}, 2);
    EXPECT_TRUE(std::isnan(total.Mean()));
  }
}

}  // namespace
}  // namespace tessera
