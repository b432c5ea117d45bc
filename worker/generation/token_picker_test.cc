#include "worker/generation/token_picker.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace tessera {
namespace {

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};

std::array<double, 3> Frequencies(const TokenChoice& choice) {
  std::array<double, 3> counts = {};
  for (int64_t i = 0; i < 20000; ++i) counts[PickToken(kLogits, choice, i)] += 1.0 / 20000;
  return counts;
}

TEST(TokenPicker, GreedyTakesTheLikeliestLowestIdFirst) {
  EXPECT_EQ(PickToken(kLogits, {.temperature = 0}, 0), 1);
  EXPECT_EQ(PickToken(std::vector<float>{1, 3, 3}, {.temperature = 0}, 0), 1);
}

// 20000 draws: four standard deviations are below 0.014.
TEST(TokenPicker, DrawsFromTheSoftmax) {
  const auto counts = Frequencies({.seed = 1});
  EXPECT_NEAR(counts[0], 0.1, 0.014);
  EXPECT_NEAR(counts[1], 0.6, 0.014);
  EXPECT_NEAR(counts[2], 0.3, 0.014);
}

TEST(TokenPicker, TemperatureSharpens) {
  const auto counts = Frequencies({.temperature = 0.5, .seed = 1});
  EXPECT_NEAR(counts[1], 0.36 / 0.46, 0.014);
}

TEST(TokenPicker, TopKKeepsTheLikeliest) {
  const auto counts = Frequencies({.top_k = 2, .seed = 1});
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(counts[1], 2.0 / 3, 0.014);
  EXPECT_EQ(PickToken(kLogits, {.top_k = 1, .seed = 9}, 5), 1);
  EXPECT_NEAR(Frequencies({.top_k = 7, .seed = 1})[0], 0.1, 0.014);
}

TEST(TokenPicker, TopPKeepsTheFewestThatReachIt) {
  // 0.6 falls short of 0.7, 0.6 + 0.3 does not.
  const auto counts = Frequencies({.top_p = 0.7, .seed = 1});
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(counts[1], 2.0 / 3, 0.014);
  EXPECT_NEAR(Frequencies({.top_p = 0.55, .seed = 1})[1], 1, 1e-9);
  EXPECT_NEAR(Frequencies({.top_p = 1e-9, .seed = 1})[1], 1, 1e-9);
  EXPECT_NEAR(Frequencies({.top_p = 0.95, .seed = 1})[0], 0.1, 0.014);
}

TEST(TokenPicker, TopPCountsAfterTopKAndTemperature) {
  // Of the two likeliest, 2/3 and 1/3: the first alone reaches 0.65, which of all three it does
  // not.
  EXPECT_NEAR(Frequencies({.top_k = 2, .top_p = 0.65, .seed = 1})[1], 1, 1e-9);
  EXPECT_LT(Frequencies({.top_p = 0.65, .seed = 1})[1], 0.7);
  // At temperature 1/2 it has 0.36 / 0.46.
  EXPECT_NEAR(Frequencies({.temperature = 0.5, .top_p = 0.75, .seed = 1})[1], 1, 1e-9);
}

TEST(TokenPicker, AFunctionOfSeedAndPosition) {
  bool seeds_differ = false;
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(PickToken(kLogits, {.seed = 3}, i), PickToken(kLogits, {.seed = 3}, i));
    seeds_differ |= PickToken(kLogits, {.seed = 3}, i) != PickToken(kLogits, {.seed = 4}, i);
  }
  EXPECT_TRUE(seeds_differ);
}

}  // namespace
}  // namespace tessera
