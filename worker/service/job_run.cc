#include "worker/service/job_run.h"

#include <exception>
#include <filesystem>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rpc/status.h"
#include "worker/data/token_source.h"
#include "worker/service/assignment.h"
#include "worker/trainer/initial_weights_file.h"

namespace tessera {

JobRun::JobRun(const WorkerContext& context, v1::RankAssignment assignment,
               std::function<void(v1::WorkerMessage)> report)
    : context_(context),
      assignment_(std::move(assignment)),
      report_(std::move(report)),
      thread_([this] { Run(); }) {}

JobRun::~JobRun() {
  Abort(absl::AbortedError("the worker ends the job"));
  thread_.join();
}

void JobRun::Run() {
  std::string sample;
  absl::Status status;
  try {
    status = Execute(&sample);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("host memory is exhausted");
  } catch (const std::exception& error) {  // of a library; own code returns its errors
    status = absl::InternalError(absl::StrCat("exception: ", error.what()));
  }
  v1::WorkerMessage message;
  v1::JobEnded& ended = *message.mutable_job_ended();
  ended.set_job_uid(assignment_.job_uid());
  ended.set_epoch(assignment_.epoch());
  std::vector<std::unique_ptr<Communicator>> closing;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) {
      // What was pending when the abort came, or else the operation that failed first.
      if (!pending_at_abort_.has_value()) pending_at_abort_ = PendingLocked();
      if (pending_at_abort_.has_value()) *ended.mutable_pending() = *pending_at_abort_;
    }
    // A run that was aborted says so, whatever the abort made fail first.
    if (!status.ok() && !abort_reason_.ok()) status = abort_reason_;
    closing.swap(communicators_);
  }
  closing.clear();
  *ended.mutable_status() = ToProto(status);
  ended.set_sample(sample);
  Report(std::move(message));
}

absl::Status JobRun::Execute(std::string* sample) {
  absl::StatusOr<JobData> data =
      OpenJobData(assignment_.spec(), context_.data_root, [this] { return CheckStop(); });
  if (!data.ok()) return data.status();
  absl::StatusOr<std::unique_ptr<WeightReader>> weights =
      OpenInitialWeights(assignment_.spec(), context_.data_root);
  if (!weights.ok()) return weights.status();
  const bool is_first = assignment_.coordinates().global_rank() == 0;
  const bool exports = is_first && assignment_.spec().has_export_();
  absl::Status status = exports ? CheckExportFolder() : absl::OkStatus();
  if (status.ok()) status = JoinGroups();
  if (!status.ok()) return status;

  const MeshGroups groups{communicators_[0].get(), communicators_[1].get(), communicators_[2].get(),
                          communicators_[3].get(), communicators_[4].get()};
  absl::StatusOr<std::unique_ptr<Trainer>> trainer =
      Trainer::Create(assignment_.spec(), assignment_.coordinates(), groups, *data, weights->get(),
                      *context_.device);
  if (!trainer.ok()) return trainer.status();
  weights->reset();  // its files need not stay mapped

  v1::WorkerMessage formed;
  formed.mutable_groups_formed()->set_job_uid(assignment_.job_uid());
  formed.mutable_groups_formed()->set_epoch(assignment_.epoch());
  for (const ShardInfo& shard : (*trainer)->shards()) {
    v1::ShardPlacement& placement = *formed.mutable_groups_formed()->add_shards();
    placement.set_unit(shard.unit);
    placement.set_kind(shard.kind);
    placement.set_offset_elements(shard.offset_elements);
    placement.set_size_elements(shard.size_elements);
    placement.set_size_bytes(shard.size_bytes);
    placement.set_tier("device");
  }
  Report(std::move(formed));

  status = (*trainer)->Run(*this);
  if (!status.ok()) return status;
  if (exports) {
    status = (*trainer)->Export(ExportFolder());
    if (!status.ok()) return status;
  }
  if (!is_first || !assignment_.spec().has_sample()) return absl::OkStatus();
  absl::StatusOr<std::string> text = (*trainer)->Sample(*this);
  if (!text.ok()) return text.status();
  *sample = *std::move(text);
  return absl::OkStatus();
}

std::string JobRun::ExportFolder() const {
  return absl::StrCat(context_.export_root, "/", assignment_.spec().export_().path());
}

absl::Status JobRun::CheckExportFolder() const {
  std::error_code error;
  if (!std::filesystem::exists(ExportFolder(), error) && !error) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("spec.export.path: ", assignment_.spec().export_().path(),
                   ": must not exist under the export root of ", context_.worker));
}

absl::Status JobRun::JoinGroups() {
  absl::StatusOr<GroupSpecs> specs = VerifyAssignment(assignment_, context_.worker);
  if (!specs.ok()) return specs.status();
  for (const GroupSpec& spec : *specs) {
    absl::StatusOr<std::unique_ptr<Communicator>> joined = context_.transport->Join(spec);
    if (!joined.ok()) return joined.status();
    std::lock_guard<std::mutex> lock(mutex_);
    if (!abort_reason_.ok()) return abort_reason_;
    communicators_.push_back(*std::move(joined));
  }
  return absl::OkStatus();
}

void JobRun::Abort(const absl::Status& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!abort_reason_.ok()) return;
    abort_reason_ = reason;
    pending_at_abort_ = PendingLocked();
    stop_ = true;
    for (const auto& communicator : communicators_) communicator->Abort(reason);
  }
  context_.transport->AbortJoins(assignment_.job_uid(), assignment_.epoch(), reason);
}

std::optional<v1::PendingCollective> JobRun::Pending() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return PendingLocked();
}

std::optional<v1::PendingCollective> JobRun::PendingLocked() const {
  PendingOperation operation;
  for (const auto& communicator : communicators_) {
    if (!communicator->pending(&operation)) continue;
    v1::PendingCollective pending;
    pending.set_group(communicator->group().name);
    pending.set_operation(CollectiveKindName(operation.kind));
    pending.set_sequence(operation.sequence);
    pending.set_size_bytes(operation.size_bytes);
    pending.set_step(step_);
    return pending;
  }
  return std::nullopt;
}

absl::Status JobRun::CheckStop() {
  if (!stop_) return absl::OkStatus();
  std::lock_guard<std::mutex> lock(mutex_);
  return abort_reason_;
}

void JobRun::OnStep(const StepResult& result) {
  if (assignment_.coordinates().global_rank() != 0) return;
  v1::WorkerMessage message;
  v1::StepReport& report = *message.mutable_step();
  report.set_job_uid(assignment_.job_uid());
  report.set_epoch(assignment_.epoch());
  report.set_step(result.step);
  report.set_loss(result.loss);
  report.set_gradient_norm(result.gradient_norm);
  report.set_learning_rate(result.learning_rate);
  report.set_tokens(result.tokens);
  report.set_seconds(result.seconds);
  report.set_skipped_steps(result.skipped_steps);
  if (result.loss_scale.has_value()) report.set_loss_scale(*result.loss_scale);
  if (result.validation_loss.has_value()) report.set_validation_loss(*result.validation_loss);
  Report(std::move(message));
}

}  // namespace tessera
