#include "worker/trainer/loss_scaler.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

LossScaleOptions Options() { return {1024, 3, 2, 256}; }

TEST(LossScaler, DoublesAfterAnIntervalWithoutOverflow) {
  LossScaler scaler(Options());
  for (int i = 0; i < 2; ++i) scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 2048);
  for (int i = 0; i < 3; ++i) scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 4096);
}

TEST(LossScaler, HalvesAtTheSecondOverflowThenAtEachAndNotBelowTheMinimum) {
  LossScaler scaler(Options());
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 512);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 256);
  EXPECT_FALSE(scaler.is_exhausted());
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 256);
  EXPECT_TRUE(scaler.is_exhausted());
}

TEST(LossScaler, AnOverflowStartsTheIntervalAnewAndGrowthRestoresTheHysteresis) {
  LossScaler scaler(Options());
  scaler.Update(false);
  scaler.Update(false);
  scaler.Update(true);  // tolerated
  scaler.Update(false);
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 2048);
  scaler.Update(true);  // tolerated again
  EXPECT_EQ(scaler.scale(), 2048);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 1024);
}

}  // namespace
}  // namespace tessera
