// The same seed gives the same bits; so does any number of threads.
#include <gtest/gtest.h>

#include "tests/parity/parity_harness.h"

namespace tessera {
namespace {

JobData SmallData() {
  JobData data;
  data.train = std::make_unique<MemoryTokenSource>(SyntheticTokens(37 * 60 + 1, 257, 3));
  data.validation = std::make_unique<MemoryTokenSource>(SyntheticTokens(37 * 7 + 1, 257, 4));
  return data;
}

v1::TrainingJobSpec SpecWithEverything(int dp) {
  v1::TrainingJobSpec spec = SmallSpec();
  spec.mutable_mesh()->set_dp(dp);
  spec.mutable_evaluation()->set_every_steps(5);
  spec.mutable_sample()->set_prompt("ab");
  spec.mutable_sample()->set_max_new_tokens(50);  // past the window of 37
  spec.mutable_seeds()->set_init(5);
  spec.mutable_seeds()->set_data(6);
  return spec;
}

void ExpectSameRun(const ParityRun& a, const ParityRun& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].gradient_norm, b.steps[i].gradient_norm);
    EXPECT_EQ(a.steps[i].validation_loss, b.steps[i].validation_loss);
  }
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.sample, b.sample);
}

TEST(Determinism, SameSeedSameBits) {
  const JobData data = SmallData();
  for (const int dp : {1, 4}) {
    auto first = TrainInProcess(SpecWithEverything(dp), data);
    auto second = TrainInProcess(SpecWithEverything(dp), data);
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    ExpectSameRun(*first, *second);
    EXPECT_EQ(first->sample.size(), 50u);
  }
}

TEST(Determinism, OtherSeedsOtherRuns) {
  const JobData data = SmallData();
  auto first = TrainInProcess(SpecWithEverything(1), data);
  v1::TrainingJobSpec spec = SpecWithEverything(1);
  spec.mutable_seeds()->set_init(7);
  auto other_init = TrainInProcess(spec, data);
  spec = SpecWithEverything(1);
  spec.mutable_seeds()->set_data(7);
  auto other_data = TrainInProcess(spec, data);
  ASSERT_TRUE(first.ok() && other_init.ok() && other_data.ok());
  EXPECT_NE(first->steps[1].loss, other_init->steps[1].loss);
  EXPECT_NE(first->steps[1].loss, other_data->steps[1].loss);
  EXPECT_EQ(first->steps[0].validation_loss, other_data->steps[0].validation_loss);
}

// libgomp is not instrumented, so tsan would report its barriers.
#if !defined(__SANITIZE_THREAD__)
TEST(Determinism, ThreadsChangeNoBit) {
  const JobData data = SmallData();
  ParityOptions options;
  auto one = TrainInProcess(SpecWithEverything(1), data, options);
  options.num_threads = 3;
  auto three = TrainInProcess(SpecWithEverything(1), data, options);
  ASSERT_TRUE(one.ok() && three.ok()) << one.status() << three.status();
  ExpectSameRun(*one, *three);
}
#endif

}  // namespace
}  // namespace tessera
