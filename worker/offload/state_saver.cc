#include "worker/offload/state_saver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "proto/rpc/field_error.h"

namespace tessera {

StateSaver::~StateSaver() {
  if (commit_.joinable()) commit_.join();
  Abandon();
}

absl::Status WithTierReason(const absl::Status& status) {
  return status.ok() ? status : WithReason(status, kTierFailed);
}

std::vector<TierStep> StateSaver::Held() const {
  std::vector<TierStep> held = store_.steps();
  std::erase_if(held, [this](const TierStep& step) { return step.job != job_uid_; });
  return held;
}

absl::Status StateSaver::Adopt(int64_t step) {
  committed_step_ = step;
  for (const TierStep& held : Held()) {
    if (held.step == step) continue;
    TESSERA_RETURN_IF_ERROR(WithTierReason(store_.DropStep(job_uid_, held.step)));
  }
  return absl::OkStatus();
}

absl::Status StateSaver::RemoveAll() {
  committed_step_.reset();
  return WithTierReason(store_.DropJob(job_uid_));
}

absl::Status StateSaver::CheckSpace(int64_t step_bytes) const {
  int64_t removed = 0;
  for (const TierStep& held : Held()) {
    if (held.step != committed_step_) removed += held.bytes;
  }
  const absl::Status status = store_.CheckSpace(std::max<int64_t>(step_bytes - removed, 0));
  if (status.ok()) return status;
  return WithTierReason(absl::Status(
      status.code(), absl::StrCat("job ", job_uid_, ": the state after the next step (the last is ",
                                  committed_step_.value_or(0), "): ", status.message())));
}

absl::Status StateSaver::Begin(int64_t step, int64_t step_bytes) {
  const TierWait wait(meter_.of(plan::Tier::kNvme));
  int64_t held_bytes = 0;
  for (const TierStep& held : Held()) {
    if (held.step == committed_step_) {
      held_bytes += held.bytes;
    } else {
      TESSERA_RETURN_IF_ERROR(WithTierReason(store_.DropStep(job_uid_, held.step)));
    }
  }
  absl::StatusOr<std::unique_ptr<TierStepWriter>> writer =
      store_.BeginStep(job_uid_, step, step_bytes);
  if (!writer.ok()) return WithTierReason(writer.status());
  writer_ = *std::move(writer);
  step_ = step;
  peak_bytes_ = std::max(peak_bytes_, held_bytes + step_bytes);
  return absl::OkStatus();
}

absl::Status StateSaver::Write(const std::string& unit, const std::string& kind, int64_t begin,
                               DType dtype, std::vector<int64_t> shape, int64_t size_bytes,
                               TierBuffer buffer) {
  meter_.of(plan::Tier::kNvme).written_bytes += size_bytes;
  // std::function wants what can be copied.
  auto held = std::make_shared<TierBuffer>(std::move(buffer));
  const absl::Span<const uint8_t> bytes = held->bytes().first(size_bytes);
  const TierWait wait(meter_.of(plan::Tier::kNvme));
  return WithTierReason(writer_->StartWrite(unit, kind, begin, dtype, std::move(shape), bytes,
                                            [held](const absl::Status&) { held->Release(); }));
}

void StateSaver::StartCommit(std::string metadata) {
  commit_ = std::thread(
      [this, metadata = std::move(metadata)] { commit_status_ = writer_->Commit(metadata); });
}

absl::Status StateSaver::Settle() {
  if (!commit_.joinable()) return absl::OkStatus();
  {
    const TierWait wait(meter_.of(plan::Tier::kNvme));
    commit_.join();
  }
  writer_.reset();
  if (commit_status_.ok()) committed_step_ = step_;
  return WithTierReason(commit_status_);
}

void StateSaver::Abandon() { writer_.reset(); }

}  // namespace tessera
