#include "worker/trainer/verification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/status_macros.h"
#include "worker/trainer/training_config.h"

namespace tessera {
namespace {

double MeanSquare(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return squares / static_cast<double>(std::max<size_t>(values.size(), 1));
}

double RmsDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(a.size(), 1)));
}

// Of a parameter, as a share of the sum of learning rates, from the deviation d of its gradients
// (root mean square): an element whose mean gradient is m is moved by AdamW by about m / |m|, which
// changes by 2 d / |m| at first order; twice that, as a step's gradient may be smaller than the
// mean; and no more than from -1 to 1.
double ExplainedDeviation(const std::vector<float>& exp_avg, double d) {
  double squares = 0;
  for (const float m : exp_avg) {
    const double size = std::abs(double{m});
    squares += std::pow(4 * d < 2 * size ? 4 * d / size : 2, 2);
  }
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(exp_avg.size(), 1)));
}

// NaN is beyond every tolerance.
bool IsWithin(double deviation, double tolerance) { return deviation <= tolerance; }

bool IsNear(double value, double reference, double relative) {
  return IsWithin(std::abs(value - reference), relative * std::abs(reference));
}

v1::VerifiedTensor MakeTensor(const std::string& name, const char* kind, double deviation,
                              double tolerance) {
  v1::VerifiedTensor tensor;
  tensor.set_name(name);
  tensor.set_kind(kind);
  tensor.set_deviation(deviation);
  tensor.set_tolerance(tolerance);
  return tensor;
}

// Keeps the larger by its share of the tolerance.
void KeepLarger(const v1::VerifiedTensor& tensor, v1::VerifiedTensor& largest) {
  if (std::isnan(largest.deviation())) return;  // nothing is larger
  const bool is_larger =
      !(tensor.deviation() * largest.tolerance() <= largest.deviation() * tensor.tolerance());
  if (largest.name().empty() || is_larger) largest = tensor;
}

}  // namespace

absl::StatusOr<std::vector<TrainingRecord::Parameter>> ReadParameters(const Trainer& trainer) {
  std::vector<TrainingRecord::Parameter> parameters;
  for (std::string& name : trainer.parameter_names()) {
    TrainingRecord::Parameter parameter;
    TESSERA_ASSIGN_OR_RETURN(parameter.values, trainer.ReadParameter(name));
    TESSERA_ASSIGN_OR_RETURN(parameter.exp_avg, trainer.ReadExpAvg(name));
    parameter.name = std::move(name);
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

// A layout changes the order in which a sum's terms are added and, with 16-bit types, where partial
// sums are rounded. With eps the unit roundoff (2^-24, 2^-8, 2^-11) a sum of n terms of like size
// moves by about sqrt(n) eps of them, and a model has some tens of such sums in a row: gradients of
// fp32 deviate by up to 100 sqrt(n) eps, the loss, a mean over all tokens, and the norm, a sum over
// all elements, by much less, as errors cancel. With 16 bits sqrt(n) eps is no bound worth the name
// (0.04 for bf16 and n = 128); there the roundings of single elements, not of sums, matter, which
// are the same few whatever n is.
//
// With 16 bits a gradient that is a small difference of large terms, as of some biases, is rounding
// to a part that depends on the model; a tensor's gradient counts as no smaller than 16 eps of the
// others'.
//
// AdamW divides each gradient element by its own size, so an element whose gradient is all rounding
// moves by up to the learning rate in any direction. How many those are depends on the model: see
// ExplainedDeviation.
VerificationTolerance ToleranceOf(DType dtype, int64_t longest_sum) {
  switch (dtype) {
    case DType::kBFloat16:
      return {.loss = 2e-3,
              .norm = 2e-2,
              .parameter = 0.15,
              .gradient = 0.1,
              .least_gradient = std::ldexp(1, -4)};
    case DType::kFloat16:
      return {.loss = 3e-4,
              .norm = 4e-3,
              .parameter = 0.05,
              .gradient = 0.02,
              .least_gradient = std::ldexp(1, -7)};
    default: {
      const double moved = std::sqrt(static_cast<double>(std::max<int64_t>(longest_sum, 128))) *
                           std::ldexp(1.0, -24);
      return {.loss = 4.5 * moved,
              .norm = 30 * moved,
              .parameter = 3000 * moved,
              .gradient = 100 * moved};
    }
  }
}

int64_t LongestSum(const v1::TrainingJobSpec& spec) {
  const ModelConfig model = MakeModelConfig(spec.model());
  return std::max(int64_t{spec.batch().global_batch_size()} * spec.data().sequence_length(),
                  model.intermediate_size);
}

v1::TrainingJobSpec VerifiedSpec(const v1::TrainingJobSpec& spec) {
  v1::TrainingJobSpec verified = spec;
  verified.mutable_optimizer()->set_gradient_clip_norm(std::numeric_limits<double>::infinity());
  return verified;
}

v1::TrainingJobSpec OneRankSpec(const v1::TrainingJobSpec& spec) {
  v1::TrainingJobSpec one = spec;
  const int dp = std::max(1, spec.mesh().dp());
  if (spec.batch().has_micro_batches()) {
    one.mutable_batch()->set_micro_batches(dp * spec.batch().micro_batches());
  } else {
    one.mutable_batch()->set_micro_batches(dp);
  }
  one.clear_mesh();
  one.clear_sequence_parallel();
  one.clear_pipeline_schedule();
  one.clear_pipeline_chunks();
  one.clear_chunk_layers();
  one.clear_context_parallel();
  one.clear_check_replicated_gradients();
  one.clear_zero_stage();
  one.clear_gradient_reduction();
  one.clear_parameter_gather();
  return one;
}

v1::VerificationReport CompareTraining(const VerificationTolerance& tolerance,
                                       const TrainingRecord& layout, const TrainingRecord& one) {
  v1::VerificationReport report;
  bool passed = true;
  double movement = 0;
  for (size_t i = 0; i < one.steps.size(); ++i) {
    const StepResult &a = one.steps[i], &b = layout.steps[i];
    v1::VerifiedStep& step = *report.add_steps();
    step.set_step(a.step);
    step.set_loss(b.loss);
    step.set_one_rank_loss(a.loss);
    step.set_gradient_norm(b.gradient_norm);
    step.set_one_rank_gradient_norm(a.gradient_norm);
    step.set_loss_tolerance(tolerance.loss);
    step.set_gradient_norm_tolerance(tolerance.norm);
    step.set_passed(IsNear(b.loss, a.loss, tolerance.loss) &&
                    (IsNear(b.gradient_norm, a.gradient_norm, tolerance.norm) ||
                     // Both overflow, and skip the step.
                     (!std::isfinite(a.gradient_norm) && !std::isfinite(b.gradient_norm))));
    passed = passed && step.passed();
    movement += a.learning_rate;
  }
  // A gradient that is all rounding (a bias that softmax does not see) is held against the others.
  double squares = 0;
  for (const TrainingRecord::Parameter& each : one.parameters) {
    squares += MeanSquare(each.exp_avg) / static_cast<double>(one.parameters.size());
  }
  for (size_t i = 0; i < one.parameters.size(); ++i) {
    const TrainingRecord::Parameter &a = one.parameters[i], &b = layout.parameters[i];
    const double scale =
        std::sqrt(std::max(MeanSquare(a.exp_avg), std::pow(tolerance.least_gradient, 2) * squares));
    const double gradient = RmsDifference(a.exp_avg, b.exp_avg);
    const v1::VerifiedTensor tensors[] = {
        MakeTensor(a.name, "gradient", gradient == 0 ? 0 : gradient / scale, tolerance.gradient),
        MakeTensor(a.name, "parameter", RmsDifference(a.values, b.values) / movement,
                   tolerance.parameter + ExplainedDeviation(a.exp_avg, gradient))};
    KeepLarger(tensors[0], *report.mutable_largest_gradient());
    KeepLarger(tensors[1], *report.mutable_largest_parameter());
    for (const v1::VerifiedTensor& tensor : tensors) {
      if (IsWithin(tensor.deviation(), tensor.tolerance())) continue;
      passed = false;
      if (!report.has_first_beyond()) *report.mutable_first_beyond() = tensor;
    }
  }
  report.set_passed(passed);
  return report;
}

}  // namespace tessera
