// Whether two runs of training computed the same: a layout and one rank.
#ifndef TESSERA_WORKER_TRAINER_VERIFICATION_H_
#define TESSERA_WORKER_TRAINER_VERIFICATION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/tessera/v1/spec.pb.h"
#include "proto/tessera/v1/verification.pb.h"
#include "worker/trainer/trainer.h"

namespace tessera {

// What a run left behind.
struct TrainingRecord {
  struct Parameter {
    std::string name;
    std::vector<float> values;   // fp32 master after the last step
    std::vector<float> exp_avg;  // AdamW's running mean of gradients
  };
  std::vector<StepResult> steps;      // of optimizer steps alone
  std::vector<Parameter> parameters;  // of the whole model, forward order
};

// All parameters of a trainer. REQUIRES as Trainer::ReadElements.
absl::StatusOr<std::vector<TrainingRecord::Parameter>> ReadParameters(const Trainer& trainer);

// Allowed deviations.
struct VerificationTolerance {
  double loss = 0;  // relative
  double norm = 0;  // of the global gradient, relative
  // Root mean square, as a share of the sum of learning rates; besides what the gradient's
  // deviation explains.
  double parameter = 0;
  double gradient = 0;  // root mean square of exp_avg's, as a share of its root mean square
  // A gradient's root mean square counts as at least this share of the whole model's.
  double least_gradient = 1e-3;
};
// For dtype and the longest sum that a layout reorders. verification.cc derives them.
VerificationTolerance ToleranceOf(DType dtype, int64_t longest_sum);
// The longest sum of a job: over the tokens of a step, or the MLP's channels.
int64_t LongestSum(const v1::TrainingJobSpec& spec);

// The job as it is verified: clipping is off. By the global norm it would spread the deviation of
// one gradient over all, and by each rank's it is another computation in another mesh. The norm
// itself is compared.
v1::TrainingJobSpec VerifiedSpec(const v1::TrainingJobSpec& spec);

// The same job on one rank, in micro-batches of the layout's size.
v1::TrainingJobSpec OneRankSpec(const v1::TrainingJobSpec& spec);

// Pure. REQUIRES: both records are of the same model and number of steps.
v1::VerificationReport CompareTraining(const VerificationTolerance& tolerance,
                                       const TrainingRecord& layout, const TrainingRecord& one);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_VERIFICATION_H_
