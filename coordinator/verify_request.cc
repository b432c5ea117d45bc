#include "coordinator/verify_request.h"

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {
constexpr int kMaxSteps = 100;
}  // namespace

absl::StatusOr<v1::CreateTrainingJobRequest> VerificationJobOf(
    const v1::VerifyTrainingJobRequest& request) {
  if (!request.has_spec()) return InvalidField("spec", "", "required");
  if (request.steps() < 1 || request.steps() > kMaxSteps) {
    return InvalidField("steps", absl::StrCat(request.steps()),
                        absl::StrCat("must be 1 .. ", kMaxSteps));
  }
  v1::CreateTrainingJobRequest create;
  create.set_training_job_id(request.training_job_id());
  create.set_request_id(request.request_id());
  v1::TrainingJobSpec& spec = *create.mutable_training_job()->mutable_spec();
  spec = request.spec();
  spec.mutable_verification();
  spec.set_steps(request.steps());
  spec.clear_evaluation();
  spec.clear_sample();
  spec.clear_export_();
  spec.clear_trace();
  // The whole run's warm-up; only where it is too long for these steps.
  if (spec.learning_rate().warmup_steps() > spec.steps()) {
    spec.mutable_learning_rate()->set_warmup_steps(spec.steps());
  }
  // It would end the run at the first difference, before there is anything to compare.
  spec.clear_check_replicated_gradients();
  return create;
}

}  // namespace tessera
