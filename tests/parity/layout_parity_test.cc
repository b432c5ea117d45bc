// Every layout of ranks and micro-batches against one rank, and the same run twice.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/parity/parity_harness.h"

namespace tessera {
namespace {

// fp32 sums of the same terms in another order. A gradient element is a sum over 24 * 37 = 888
// tokens, cut into as many parts as there are ranks times micro-batches: its relative error is
// below sqrt(888) * 2^-24 = 1.8e-6 of the terms' magnitude. Losses follow through 20 small steps;
// 1e-5 leaves a factor of 5 for that.
constexpr double kRelative = 1e-5;

JobData MaskedData() {
  JobData data;
  // Blocks of 5 windows out of 20 that are full of id 7, which is ignored: ranks get uneven shares,
  // some micro-batches none.
  std::vector<int32_t> tokens = SyntheticTokens(37 * 200 + 1, 257, 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i / (37 * 5) % 4 == 0) tokens[i] = 7;
  }
  data.train = std::make_unique<MemoryTokenSource>(std::move(tokens));
  data.validation = std::make_unique<MemoryTokenSource>(SyntheticTokens(37 * 11 + 5, 257, 2));
  return data;
}

v1::TrainingJobSpec MaskedSpec(int dp, int micro_batches) {
  v1::TrainingJobSpec spec = SmallSpec();
  spec.mutable_data()->add_ignore_target_ids(7);
  spec.mutable_data()->add_ignore_target_ids(11);
  spec.mutable_batch()->set_global_batch_size(24);  // divides by every layout below
  spec.set_steps(20);
  spec.mutable_mesh()->set_dp(dp);
  spec.mutable_batch()->set_micro_batches(micro_batches);
  spec.mutable_evaluation()->set_every_steps(10);
  return spec;
}

struct Layout {
  const char* name;
  int dp;
  int micro_batches;
};

class LayoutParity : public testing::TestWithParam<Layout> {};

TEST_P(LayoutParity, SameCurveAsOneRank) {
  const JobData data = MaskedData();
  static const ParityRun* one = [] {
    const JobData data = MaskedData();
    return new ParityRun(*TrainInProcess(MaskedSpec(1, 1), data));
  }();
  auto run = TrainInProcess(MaskedSpec(GetParam().dp, GetParam().micro_batches), data);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->steps.size(), one->steps.size());
  ASSERT_EQ(run->steps.size(), 21u);
  for (size_t i = 0; i < one->steps.size(); ++i) {
    const StepResult &a = one->steps[i], &b = run->steps[i];
    EXPECT_NEAR(b.loss, a.loss, kRelative * a.loss) << "step " << a.step;
    EXPECT_NEAR(b.gradient_norm, a.gradient_norm, kRelative * a.gradient_norm) << "step " << a.step;
    EXPECT_EQ(b.validation_loss.has_value(), a.step % 10 == 0);
    if (a.validation_loss) {
      EXPECT_NEAR(*b.validation_loss, *a.validation_loss, kRelative * *a.validation_loss);
    }
  }
  EXPECT_LT(one->steps.back().loss, one->steps[1].loss);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutParity,
                         testing::Values(Layout{"Dp1Micro2", 1, 2}, Layout{"Dp1Micro3", 1, 3},
                                         Layout{"Dp2Micro1", 2, 1}, Layout{"Dp2Micro2", 2, 2},
                                         Layout{"Dp2Micro3", 2, 3}, Layout{"Dp4Micro1", 4, 1},
                                         Layout{"Dp4Micro2", 4, 2}, Layout{"Dp4Micro3", 4, 3}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
