#include "coordinator/verify_request.h"

#include <gtest/gtest.h>

#include "coordinator/controller_testing.h"
#include "coordinator/spec_validation.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

// Of a job with all that a verification leaves out.
v1::VerifyTrainingJobRequest Verify() {
  v1::VerifyTrainingJobRequest request;
  request.set_training_job_id("check");
  request.set_request_id("123e4567-e89b-42d3-a456-426614174000");
  request.set_steps(3);
  v1::TrainingJobSpec& spec = *request.mutable_spec();
  spec = Request("", 2).training_job().spec();
  spec.set_steps(1000);
  spec.mutable_learning_rate()->set_warmup_steps(50);
  spec.mutable_data()->set_validation_path("y");
  spec.mutable_evaluation()->set_every_steps(10);
  spec.mutable_sample()->set_prompt("x");
  spec.mutable_sample()->set_max_new_tokens(1);
  spec.mutable_export_()->set_path("out");
  spec.mutable_trace()->set_step(1000);
  return request;
}

TEST(VerifyRequest, TakesAFewStepsOfTheJobAndLeavesOutTheRest) {
  const auto create = VerificationJobOf(Verify());
  ASSERT_TRUE(create.ok()) << create.status();
  EXPECT_EQ(create->training_job_id(), "check");
  EXPECT_EQ(create->request_id(), "123e4567-e89b-42d3-a456-426614174000");
  EXPECT_FALSE(create->validate_only());
  const v1::TrainingJobSpec& spec = create->training_job().spec();
  EXPECT_TRUE(spec.has_verification());
  EXPECT_EQ(spec.steps(), 3);
  EXPECT_EQ(spec.learning_rate().warmup_steps(), 3);
  EXPECT_FALSE(spec.has_evaluation() || spec.has_sample() || spec.has_export_() ||
               spec.has_trace());
  EXPECT_FALSE(spec.check_replicated_gradients());
  EXPECT_EQ(ValidateSpec(spec), absl::OkStatus());
}

TEST(VerifyRequest, WarmUpThatFitsStays) {
  v1::VerifyTrainingJobRequest request = Verify();
  for (const int warmup : {0, 2, 3, -1}) {
    request.mutable_spec()->mutable_learning_rate()->set_warmup_steps(warmup);
    EXPECT_EQ(VerificationJobOf(request)->training_job().spec().learning_rate().warmup_steps(),
              warmup);
  }
}

TEST(VerifyRequest, DoesNotEndAtTheFirstDifferenceOfReplicatedGradients) {
  v1::VerifyTrainingJobRequest request = Verify();
  request.mutable_spec()->mutable_mesh()->set_tp(2);
  request.mutable_spec()->set_check_replicated_gradients(true);
  EXPECT_FALSE(VerificationJobOf(request)->training_job().spec().check_replicated_gradients());
}

TEST(VerifyRequest, EachErrorNamesItsField) {
  v1::VerifyTrainingJobRequest request = Verify();
  for (const int steps : {-1, 0, 101}) {
    request.set_steps(steps);
    EXPECT_EQ(FieldOf(VerificationJobOf(request).status()), "steps") << steps;
  }
  request.set_steps(100);
  EXPECT_TRUE(VerificationJobOf(request).ok());
  request.clear_spec();
  EXPECT_EQ(FieldOf(VerificationJobOf(request).status()), "spec");
}

}  // namespace
}  // namespace tessera
