#include "coordinator/job_progress.h"

#include <cstdint>

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

}  // namespace tessera
