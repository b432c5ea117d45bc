#include "coordinator/job_progress.h"

#include <utility>

namespace tessera {
namespace {

using Curve = google::protobuf::RepeatedPtrField<v1::LossPoint>;

void AddPoint(int64_t step, double loss, Curve& curve) {
  if (!curve.empty() && curve.rbegin()->step() >= step) return;
  if (curve.size() == kMaxCurvePoints) {  // every second one goes; the first stays
    int kept = 0;
    for (int i = 0; i < curve.size(); i += 2) curve.SwapElements(kept++, i);
    curve.DeleteSubrange(kept, curve.size() - kept);
  }
  v1::LossPoint* point = curve.Add();
  point->set_step(step);
  point->set_loss(loss);
}

void DropAfter(int64_t step, Curve& curve) {
  while (!curve.empty() && curve.rbegin()->step() > step) curve.RemoveLast();
}

}  // namespace

void ApplyStepReport(const v1::StepReport& report, v1::JobProgress& progress) {
  if (report.step() > progress.step()) {
    progress.set_step(report.step());
    progress.set_loss(report.loss());
    progress.set_gradient_norm(report.gradient_norm());
    progress.set_learning_rate(report.learning_rate());
    progress.set_skipped_steps(report.skipped_steps());
    if (report.has_loss_scale()) progress.set_loss_scale(report.loss_scale());
    *progress.mutable_traffic() = report.traffic();
    progress.clear_step_time();
    if (report.has_step_time()) *progress.mutable_step_time() = report.step_time();
    *progress.mutable_tier_traffic() = report.tier_traffic();
    if (report.seconds() > 0) {
      progress.set_tokens_per_second(static_cast<double>(report.tokens()) / report.seconds());
    }
    // The first and last steps and a fixed stride, so that the curve is even however long it is.
    const int64_t stride = (progress.total_steps() + kMaxCurvePoints - 3) / (kMaxCurvePoints - 2);
    if (report.step() == 1 || report.step() == progress.total_steps() || stride <= 1 ||
        report.step() % stride == 0) {
      AddPoint(report.step(), report.loss(), *progress.mutable_loss_curve());
    }
  }
  const Curve& known = progress.validation_curve();
  if (report.has_validation_loss() && (known.empty() || known.rbegin()->step() < report.step())) {
    if (!progress.has_first_validation_loss()) {
      progress.set_first_validation_loss(report.validation_loss());
    }
    progress.set_validation_loss(report.validation_loss());
    AddPoint(report.step(), report.validation_loss(), *progress.mutable_validation_curve());
  }
}

void RewindProgress(int64_t step, v1::JobProgress& progress) {
  progress.clear_seconds_left();
  DropAfter(step, *progress.mutable_loss_curve());
  DropAfter(step, *progress.mutable_validation_curve());
  if (step == 0) {  // as before the first report; an evaluation may have come
    v1::JobProgress first;
    first.set_total_steps(progress.total_steps());
    first.mutable_validation_curve()->Swap(progress.mutable_validation_curve());
    progress = std::move(first);
  }
  const bool is_back = progress.step() > step;
  progress.set_step(step);
  if (is_back && !progress.loss_curve().empty()) {
    progress.set_loss(progress.loss_curve().rbegin()->loss());
  }
  const Curve& validations = progress.validation_curve();
  progress.clear_validation_loss();
  if (validations.empty()) {
    progress.clear_first_validation_loss();
  } else {
    progress.set_first_validation_loss(validations.begin()->loss());
    progress.set_validation_loss(validations.rbegin()->loss());
  }
}

}  // namespace tessera
