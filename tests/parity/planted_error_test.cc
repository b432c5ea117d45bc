// Verification finds what a test build plants, and nothing where nothing is planted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/parity/mesh_cases.h"
#include "worker/trainer/training_config.h"
#include "worker/trainer/verification.h"

namespace tessera {
namespace {

v1::VerificationReport Verify(const MeshCase& row, const char* planted) {
  setenv("TESSERA_PLANTED_ERROR", planted, 1);
  const JobData data = MeshData(row);
  v1::TrainingJobSpec spec = VerifiedSpec(MeshSpec(row));
  spec.set_steps(3);
  spec.clear_evaluation();                  // its passes would take the planted error
  spec.clear_check_replicated_gradients();  // which would find it first
  const auto layout = TrainInProcess(spec, data);
  const auto one = TrainInProcess(OneRankSpec(spec), data);
  EXPECT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE(one.ok()) << one.status();
  if (!layout.ok() || !one.ok()) return {};
  return CompareTraining(ToleranceOf(DTypeOf(spec.precision()), LongestSum(spec)), layout->record,
                         one->record);
}

TEST(PlantedError, NothingPlantedNothingFound) {
  EXPECT_TRUE(Verify({.name = "", .pp = 2, .tp = 2}, "").passed());
}

TEST(PlantedError, ADroppedAllReduceIsFound) {
  const v1::VerificationReport report = Verify({.name = "", .tp = 2}, "drop_all_reduce");
  EXPECT_FALSE(report.passed());
  EXPECT_FALSE(report.steps(0).passed());
  EXPECT_TRUE(report.has_first_beyond());
}

// AdamW divides it away: no weight shows it, the gradient's mean does.
TEST(PlantedError, ADoubledBiasGradientIsFoundByName) {
  const v1::VerificationReport report =
      Verify({.name = "", .pp = 2, .tp = 2}, "double_bias_gradient");
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.largest_gradient().name(), "h.0.attn.c_proj.bias");
  EXPECT_EQ(report.first_beyond().name(), "h.0.attn.c_proj.bias");
  EXPECT_NEAR(report.largest_gradient().deviation(), 1, 0.01);
}

TEST(PlantedError, ShiftedPositionsAreFound) {
  const v1::VerificationReport report = Verify({.name = "", .cp = 2}, "shift_positions");
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.first_beyond().name(), "wte.weight");
  EXPECT_FALSE(report.steps(0).passed());
}

}  // namespace
}  // namespace tessera
