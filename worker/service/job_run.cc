#include "worker/service/job_run.h"

#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/timeline_svg.h"
#include "plan/trace_events.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/status.h"
#include "worker/data/token_source.h"
#include "worker/offload/state_saver.h"
#include "worker/service/assignment.h"
#include "worker/trainer/initial_weights_file.h"
#include "worker/trainer/training_config.h"

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
  v1::WorkerMessage message;
  v1::JobEnded& ended = *message.mutable_job_ended();
  ended.set_job_uid(assignment_.job_uid());
  ended.set_epoch(assignment_.epoch());
  absl::Status status;
  try {
    status = Execute(ended);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("host memory is exhausted");
  } catch (const std::exception& error) {  // of a library; own code returns its errors
    status = absl::InternalError(absl::StrCat("exception: ", error.what()));
  }
  momentary_bytes_ = 0;
  ServeWeights(0, nullptr);
  std::vector<std::unique_ptr<Communicator>> closing;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) {
      // What was pending when the abort came, or else the operation that failed first.
      if (!pending_at_abort_.has_value()) pending_at_abort_ = PendingLocked();
      if (pending_at_abort_.has_value()) *ended.mutable_pending() = *pending_at_abort_;
    }
    // A run that was aborted says so, whatever the abort made fail first; but a tier fails by
    // itself.
    const bool is_echo = ReasonOf(status) != kTierFailed;
    if (!status.ok() && !abort_reason_.ok() && is_echo) status = abort_reason_;
    closing.swap(communicators_);
  }
  closing.clear();
  if (context_.tiers != nullptr) {
    std::optional<v1::SavedState> saved = context_.tiers->SavedOf(assignment_.job_uid());
    if (saved.has_value()) *ended.mutable_saved() = *std::move(saved);
  }
  *ended.mutable_status() = ToProto(status);
  Report(std::move(message));
}

absl::Status JobRun::Execute(v1::JobEnded& ended) {
  absl::StatusOr<JobData> data =
      OpenJobData(assignment_.spec(), context_.data_root, [this] { return CheckStop(); });
  if (!data.ok()) return data.status();
  absl::StatusOr<std::unique_ptr<WeightReader>> weights = nullptr;
  if (!assignment_.has_resume_step()) {
    weights = OpenInitialWeights(assignment_.spec(), context_.data_root);
    if (!weights.ok()) return weights.status();
  }
  const bool is_first = assignment_.coordinates().global_rank() == 0;
  absl::Status status =
      is_first && assignment_.spec().has_export_() ? CheckExportFolder() : absl::OkStatus();
  if (status.ok()) status = JoinGroups();
  if (!status.ok()) return status;

  const MeshGroups groups{communicators_[0].get(), communicators_[1].get(), communicators_[2].get(),
                          communicators_[3].get(), communicators_[4].get()};
  absl::StatusOr<std::unique_ptr<Trainer>> trainer = CreateTrainer(groups, *data, weights->get());
  if (!trainer.ok()) return AbortGroups(trainer.status());
  momentary_bytes_ = (*trainer)->momentary_bytes();
  weights->reset();  // its files need not stay mapped
  ReportFormed(**trainer);

  unreported_ = trainer->get();
  status = (*trainer)->Run(*this);
  if (status.ok() && (*trainer)->suspended_step().has_value()) {
    ended.set_suspended_step(*(*trainer)->suspended_step());
  } else if (status.ok()) {
    status = assignment_.spec().has_verification() ? Verify(*std::move(trainer), *data, ended)
                                                   : Finish(**trainer, ended);
  }
  ServeWeights(0, nullptr);
  return status.ok() ? status : AbortGroups(status);
}

absl::StatusOr<std::unique_ptr<Trainer>> JobRun::CreateTrainer(const MeshGroups& groups,
                                                               const JobData& data,
                                                               const WeightReader* weights) {
  const SetupGateClosure closure(*context_.gate);
  context_.device->arena().ResetPeaks();
  StateOptions state;
  state.job_uid = assignment_.job_uid();
  if (context_.tiers != nullptr) {
    state.tiers = context_.tiers->tiers();
    if (state.tiers.host != nullptr) state.tiers.host->arena().ResetPeaks();
  }
  if (assignment_.has_resume_step()) {
    state.resume_step = assignment_.resume_step();
  } else if (state.tiers.nvme != nullptr) {
    // From the start: what the tier holds is of no use.
    absl::Status dropped = state.tiers.nvme->DropJob(assignment_.job_uid());
    if (!dropped.ok()) return WithTierReason(dropped);
  }
  const v1::TrainingJobSpec& spec = assignment_.spec();
  return Trainer::Create(spec.has_verification() ? VerifiedSpec(spec) : spec,
                         assignment_.coordinates(), groups, data, weights, *context_.device, state);
}

absl::Status JobRun::Finish(Trainer& trainer, v1::JobEnded& ended) {
  if (assignment_.spec().has_export_()) {
    absl::Status status = trainer.ShareWeights([&] { return trainer.Export(ExportFolder()); });
    if (!status.ok()) return status;
  }
  if (assignment_.spec().has_sample()) {
    absl::StatusOr<std::string> text = trainer.Sample(*this);
    if (!text.ok()) return text.status();
    ended.set_sample(*text);
  }
  return trainer.ShareWeights([&] {
    // A job whose weights cannot be kept has been trained all the same.
    *ended.mutable_weights_kept() =
        ToProto(context_.kept_weights->Keep(assignment_.job_uid(), [&](const std::string& folder) {
          return trainer.ExportAs(folder, trainer.dtype());
        }));
    return absl::OkStatus();
  });
}

absl::Status JobRun::Verify(std::unique_ptr<Trainer> trainer, const JobData& data,
                            v1::JobEnded& ended) {
  TrainingRecord layout;
  layout.steps.swap(verified_steps_);
  absl::Status status = trainer->ShareWeights([&] {
    absl::StatusOr<std::vector<TrainingRecord::Parameter>> parameters = ReadParameters(*trainer);
    if (!parameters.ok()) return parameters.status();
    layout.parameters = *std::move(parameters);
    return absl::OkStatus();
  });
  trainer.reset();  // its memory is needed
  if (!status.ok() || assignment_.coordinates().global_rank() != 0) return status;

  absl::StatusOr<TrainingRecord> one = TrainOnOneRank(data);
  if (!one.ok()) return one.status();
  const v1::TrainingJobSpec& spec = assignment_.spec();
  *ended.mutable_verification() =
      CompareTraining(ToleranceOf(DTypeOf(spec.precision()), LongestSum(spec)), layout, *one);
  return absl::OkStatus();
}

absl::StatusOr<TrainingRecord> JobRun::TrainOnOneRank(const JobData& data) {
  const v1::TrainingJobSpec spec = OneRankSpec(VerifiedSpec(assignment_.spec()));
  absl::StatusOr<std::unique_ptr<WeightReader>> weights =
      OpenInitialWeights(spec, context_.data_root);
  if (!weights.ok()) return weights.status();
  MeshGroups groups;
  Communicator** const slots[] = {&groups.dp, &groups.cp, &groups.pp, &groups.tp, &groups.zero};
  for (size_t i = 0; i < std::size(slots); ++i) {
    GroupSpec alone;
    alone.name = absl::StrCat("one_rank_", plan::GroupAxisName(plan::kGroupAxes[i]));
    alone.job_uid = assignment_.job_uid();
    alone.epoch = assignment_.epoch();
    alone.members = {{0, context_.worker, context_.transport->address()}};
    absl::StatusOr<Communicator*> joined = Join(alone);
    if (!joined.ok()) return joined.status();
    *slots[i] = *joined;
  }
  absl::StatusOr<std::unique_ptr<Trainer>> trainer;
  {
    const SetupGateClosure closure(*context_.gate);
    trainer = Trainer::Create(spec, v1::MeshCoordinates(), groups, data, weights->get(),
                              *context_.device);
  }
  if (!trainer.ok()) {
    return absl::Status(
        trainer.status().code(),
        absl::StrCat("the model on one rank, to compare with: ", trainer.status().message()));
  }
  is_reference_ = true;
  const absl::Status status = (*trainer)->Run(*this);
  if (!status.ok()) return status;
  TrainingRecord record;
  record.steps.swap(verified_steps_);
  absl::StatusOr<std::vector<TrainingRecord::Parameter>> parameters = ReadParameters(**trainer);
  if (!parameters.ok()) return parameters.status();
  record.parameters = *std::move(parameters);
  return record;
}

void JobRun::OnStepBegin(int64_t step) { step_ = step; }

absl::Status JobRun::OnTimeline(const plan::Timeline& timeline) {
  const std::string path =
      absl::StrCat(context_.export_root, "/", assignment_.spec().trace().path());
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  for (const auto& [ending, text] : {std::pair{".json", plan::TraceEventsJson(timeline)},
                                     std::pair{".svg", plan::TimelineSvg(timeline)}}) {
    if (!text.ok()) return text.status();
    std::ofstream file(path + ending, std::ios::binary | std::ios::trunc);
    file << *text;
    file.close();
    if (!file) {
      return absl::UnavailableError(
          absl::StrCat("spec.trace.path: ", assignment_.spec().trace().path(), ending,
                       ": cannot be written under the export "
                       "root of ",
                       context_.worker));
    }
  }
  return absl::OkStatus();
}

bool JobRun::WantsWeights() {
  std::lock_guard<std::mutex> lock(mutex_);
  return !weights_reads_.empty();
}

void JobRun::OnWeights(int64_t step, const Trainer& trainer) { ServeWeights(step, &trainer); }

void JobRun::ServeWeights(int64_t step, const Trainer* trainer) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (trainer == nullptr) training_ended_ = true;
  while (!weights_reads_.empty()) {
    WeightsRead& read = *weights_reads_.front();
    weights_reads_.pop_front();
    if (trainer == nullptr) {
      read.result = absl::NotFoundError("training has ended");
    } else {
      read.is_running = true;
      lock.unlock();
      absl::Status result;
      try {
        result = (*read.callback)(step, *trainer);
      } catch (const std::bad_alloc&) {  // the reader's, not the job's
        result = absl::ResourceExhaustedError("host memory is exhausted");
      }
      lock.lock();
      read.result = std::move(result);
    }
    weights_changed_.notify_all();
  }
}

absl::Status JobRun::ReadWeights(const std::function<absl::Status()>& check_stop,
                                 const WeightsCallback& callback) {
  WeightsRead read;
  read.callback = &callback;
  std::unique_lock<std::mutex> lock(mutex_);
  if (training_ended_) return absl::NotFoundError("training has ended");
  weights_reads_.push_back(&read);
  while (!weights_changed_.wait_for(lock, std::chrono::milliseconds(50),
                                    [&] { return read.result.has_value(); })) {
    if (read.is_running) continue;
    absl::Status status = check_stop();
    if (status.ok()) continue;
    std::erase(weights_reads_, &read);
    return status;
  }
  return *read.result;
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
    if (absl::Status status = Join(spec).status(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Communicator*> JobRun::Join(const GroupSpec& spec) {
  absl::StatusOr<std::unique_ptr<Communicator>> joined = context_.transport->Join(spec);
  if (!joined.ok()) return joined.status();
  std::lock_guard<std::mutex> lock(mutex_);
  if (!abort_reason_.ok()) return abort_reason_;
  communicators_.push_back(*std::move(joined));
  return communicators_.back().get();
}

absl::Status JobRun::AbortGroups(const absl::Status& error) {
  const absl::Status reason =
      absl::AbortedError(absl::StrCat(context_.worker, " failed: ", error.message()));
  for (const auto& communicator : communicators_) communicator->Abort(reason);
  return error;
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

}  // namespace tessera
