// Controller: which job gets which workers.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/job_progress.h"
#include "coordinator/job_state.h"
#include "coordinator/memory_shortage.h"
#include "coordinator/placement.h"
#include "coordinator/spec_layout.h"
#include "plan/mesh.h"

namespace tessera {
namespace {

constexpr char kWaitingForState[] = "WAITING_FOR_STATE";
// What is free on a disk is another number with every heartbeat; it is journaled and published no
// more often than this while it is the same tier that is short.
constexpr absl::Duration kShortageRenewal = absl::Seconds(10);

void TakeAway(const std::vector<std::string>& workers, std::vector<Candidate>& idle) {
  idle.erase(std::remove_if(idle.begin(), idle.end(),
                            [&](const Candidate& candidate) {
                              return std::find(workers.begin(), workers.end(), candidate.worker) !=
                                     workers.end();
                            }),
             idle.end());
}

std::vector<std::string> WorkersOf(const v1::TrainingJobStatus& status) {
  std::vector<std::string> workers;
  for (const v1::RankPlacement& place : status.placement()) workers.push_back(place.worker());
  return workers;
}

}  // namespace

int Controller::MostThreads() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return FleetLocked().most_threads;
}

Controller::Fleet Controller::FleetLocked() const {
  Fleet fleet;
  for (const auto& [name, worker] : registry_.workers()) {
    if (!worker.attached() || worker.info.state() == v1::WORKER_STATE_STOPPING) continue;
    Candidate& candidate = fleet.workers.emplace_back(worker.candidate());
    // What a running job has on disk goes with it; what suspended ones have stays.
    if (!worker.job_uid.empty()) candidate.has.nvme += worker.info.nvme_used_bytes();
    fleet.most_threads = std::max(fleet.most_threads, worker.info.threads());
  }
  return fleet;
}

absl::Status Controller::CheckMemory(const v1::TrainingJobSpec& spec) const {
  Fleet fleet;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fleet = FleetLocked();
  }
  const size_t world_size = MeshOf(spec.mesh()).world_size();
  if (fleet.workers.size() < world_size) return absl::OkStatus();
  const JobMemory memory(spec, fleet.most_threads);
  const std::optional<MemoryShortage> shortage =
      FindShortage(memory.Needs(), BytesOf(fleet.workers));
  if (!shortage.has_value()) return absl::OkStatus();
  return InsufficientMemory(spec, memory, *shortage, fleet.workers);
}

void Controller::PredictLocked(JobRecord& record, const Fleet& fleet) {
  if (record.memory.has_value() && record.memory->num_threads() == fleet.most_threads) return;
  record.memory.emplace(record.job.spec(), fleet.most_threads);
}

void Controller::TellWaitingLocked(JobRecord& record, const std::string& reason,
                                   const std::string& message) {
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  const v1::JobCondition& last = *status.conditions().rbegin();
  if (last.reason() == reason && last.state() == status.state()) {
    if (last.message() == message) return;
    status.mutable_conditions()->RemoveLast();
  }
  TransitionLocked(record, status.state(), reason, message);
}

void Controller::TellShortLocked(JobRecord& record, plan::Tier tier, const std::string& message) {
  const v1::TrainingJobStatus& status = record.job.status();
  const v1::JobCondition& last = *status.conditions().rbegin();
  const absl::Duration now = clock_->Monotonic();
  const bool is_told = last.reason() == ShortageReason(tier) && last.state() == status.state() &&
                       record.shortage_told_at.has_value() &&
                       now < *record.shortage_told_at + kShortageRenewal;
  if (is_told) return;
  record.shortage_told_at = now;
  TellWaitingLocked(record, ShortageReason(tier), message);
}

bool Controller::TellShortageLocked(JobRecord& record, const Fleet& fleet) {
  const std::optional<MemoryShortage> shortage =
      FindShortage(record.memory->Needs(), BytesOf(fleet.workers));
  if (!shortage.has_value()) return false;
  TellShortLocked(record, shortage->tier, ShortageText(*record.memory, *shortage, fleet.workers));
  return true;
}

bool Controller::TellShortfallLocked(JobRecord& record) {
  const std::vector<TierBytes> needs = record.memory->Needs();
  for (const StateHolder& holder : HoldersLocked(record)) {
    const TierBytes& rank_needs = needs[holder.global_rank];
    const WorkerEntry& worker = *registry_.Find(holder.worker);
    Candidate candidate = worker.candidate();
    if (!worker.job_uid.empty()) candidate.has.nvme += worker.info.nvme_used_bytes();
    // Its own state need not find room once more: two steps of it are predicted.
    candidate.has.nvme +=
        std::min(rank_needs.nvme, rank_needs.nvme / 2 * static_cast<int64_t>(holder.steps.size()));
    const auto shortfall = FindShortfall(candidate, holder.global_rank, rank_needs);
    if (!shortfall.has_value()) continue;
    TellShortLocked(record, shortfall->tier, shortfall->message);
    return true;
  }
  return false;
}

std::vector<Controller::JobRecord*> Controller::QueueLocked() {
  std::vector<JobRecord*> queue;
  for (auto& [name, record] : jobs_) {
    const v1::JobState state = record.job.status().state();
    if (state == v1::JOB_STATE_PENDING || state == v1::JOB_STATE_RECOVERING) {
      queue.push_back(&record);
    }
  }
  std::sort(queue.begin(), queue.end(), [](const JobRecord* a, const JobRecord* b) {
    using google::protobuf::util::TimeUtil;
    const int64_t time_a = TimeUtil::TimestampToNanoseconds(a->job.create_time());
    const int64_t time_b = TimeUtil::TimestampToNanoseconds(b->job.create_time());
    return std::make_tuple(-a->job.spec().priority(), time_a, a->job.name()) <
           std::make_tuple(-b->job.spec().priority(), time_b, b->job.name());
  });
  return queue;
}

void Controller::ScheduleLocked() {
  if (shut_down_) return;
  // By priority, then first come, first served: a job that does not fit yet is not overtaken by a
  // later one, so that a large job is not starved by small ones. But one that nothing in the queue
  // holds up holds up nobody: one for which the attached workers are too small, even when all are
  // idle, or whose state is on a worker that is not there.
  Schedule schedule{FleetLocked(), registry_.IdleWorkers()};
  for (JobRecord* record : QueueLocked()) {
    if (AwaitsState(record->job.status())) {
      ScheduleWithStateLocked(*record, schedule);
    } else {
      ScheduleAnywhereLocked(*record, schedule);
    }
  }
}

void Controller::ScheduleAnywhereLocked(JobRecord& record, Schedule& schedule) {
  if (HoldBackLocked(record, std::nullopt)) return;
  if (schedule.is_blocked) return;
  const plan::MeshSize mesh = MeshOf(record.job.spec().mesh());
  schedule.is_blocked = static_cast<int>(schedule.fleet.workers.size()) < mesh.world_size();
  if (schedule.is_blocked) return;
  PredictLocked(record, schedule.fleet);
  if (TellShortageLocked(record, schedule.fleet)) return;
  const absl::StatusOr<std::vector<std::string>> workers =
      PlaceRanks(mesh, record.memory->Needs(), schedule.idle);
  if (workers.ok()) {
    AssignLocked(record, *workers, std::nullopt);
    TakeAway(*workers, schedule.idle);
    return;
  }
  schedule.is_blocked = true;
  if (record.job.spec().preempt()) PreemptAnywhereLocked(record, schedule.idle);
}

void Controller::ScheduleWithStateLocked(JobRecord& record, Schedule& schedule) {
  using Kind = ResumeDecision::Kind;
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  const ResumeDecision decision =
      DecideResume(HoldersLocked(record), KnownCommittedStep(record.job));
  const std::string text = absl::StrCat(record.job.name(), ": ", decision.message);
  const std::vector<std::string> workers = WorkersOf(status);
  switch (decision.kind) {
    case Kind::kStartOver:
      status.clear_placement();
      status.clear_memory();
      TransitionLocked(record, status.state(), "NO_SAVED_STATE",
                       "no step has been committed on all ranks: it starts from the beginning");
      return ScheduleAnywhereLocked(record, schedule);
    case Kind::kWaitForState:
      TellWaitingLocked(record, kWaitingForState, text);
      // Those that are back wait a while for the others, which may be just starting again.
      if (clock_->Monotonic() < record.reserved_until) TakeAway(workers, schedule.idle);
      return;
    case Kind::kWaitForWorkers:
    case Kind::kResume:
      break;
  }
  if (HoldBackLocked(record, decision.step)) {
    // While it pauses.
    if (status.state() == v1::JOB_STATE_RECOVERING) TakeAway(workers, schedule.idle);
    return;
  }
  PredictLocked(record, schedule.fleet);
  if (TellShortfallLocked(record)) return;
  const bool are_taken =
      std::any_of(workers.begin(), workers.end(), [&](const std::string& worker) {
        return std::none_of(schedule.idle.begin(), schedule.idle.end(),
                            [&](const Candidate& candidate) { return candidate.worker == worker; });
      });
  if (!schedule.is_blocked && decision.kind == Kind::kResume && !are_taken) {
    AssignLocked(record, workers, decision.step);
    TakeAway(workers, schedule.idle);
    return;
  }
  std::string waits_for =
      decision.kind == Kind::kWaitForWorkers
          ? text
          : absl::StrCat(record.job.name(), ": jobs before it get workers first");
  const bool preempts = record.job.spec().preempt() && !schedule.is_blocked;
  if (preempts) absl::StrAppend(&waits_for, HoldersThatStayLocked(record));
  TellWaitingLocked(record, kWaitingForWorkers, waits_for);
  if (schedule.is_blocked) return;
  if (preempts) PreemptHoldersLocked(record);
  TakeAway(workers, schedule.idle);  // it is not overtaken on them
}

void Controller::AssignLocked(JobRecord& record, const std::vector<std::string>& workers,
                              std::optional<int64_t> resume_step) {
  const plan::MeshSize mesh = MeshOf(record.job.spec().mesh());
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  status.set_epoch(status.epoch() + 1);
  status.clear_placement();
  status.clear_memory();
  status.clear_saved_step();
  status.clear_resume_step();
  if (resume_step.has_value()) {
    status.set_saved_step(*resume_step);
    status.set_resume_step(*resume_step);
  }
  RewindProgress(resume_step.value_or(0), *status.mutable_progress());
  record.speed_origin.reset();
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const plan::Coordinates at = plan::CoordinatesOf(mesh, static_cast<int>(rank));
    v1::RankPlacement& place = *status.add_placement();
    place.set_worker(workers[rank]);
    place.set_instance_id(registry_.Find(workers[rank])->info.instance_id());
    place.mutable_coordinates()->set_global_rank(at.global_rank);
    place.mutable_coordinates()->set_dp_rank(at.dp_rank);
    place.mutable_coordinates()->set_cp_rank(at.cp_rank);
    place.mutable_coordinates()->set_pp_rank(at.pp_rank);
    place.mutable_coordinates()->set_tp_rank(at.tp_rank);
    const plan::RankLedger& predicted = record.memory->OfLayout(at.global_rank);
    v1::RankMemory& memory = *status.add_memory();
    memory.set_global_rank(at.global_rank);
    *memory.mutable_predicted() = ToProto(predicted);
    if (const auto tiers = TiersToProto(predicted); tiers.has_value()) {
      *memory.mutable_predicted_tiers() = *tiers;
    }
  }
  record.memory.reset();
  TransitionLocked(
      record, v1::JOB_STATE_ADMITTED, "PLACED",
      absl::StrCat(
          "on ", workers.size(), " workers",
          resume_step.has_value() ? absl::StrCat(", goes on after step ", *resume_step) : ""));
  record.active = std::make_unique<ActiveJob>(
      record.job.uid(), status.epoch(), status.placement(), /*formed=*/false,
      resume_step.has_value() || OffloadOf(record.job.spec()).commits_steps());

  for (size_t rank = 0; rank < workers.size(); ++rank) {
    WorkerEntry& worker = *registry_.Find(workers[rank]);
    worker.job_uid = record.job.uid();
    worker.epoch = status.epoch();
    worker.info.set_state(v1::WORKER_STATE_BUSY);
    worker.info.set_training_job(record.job.name());
    if (!resume_step.has_value()) worker.saved.erase(record.job.uid());  // it drops it
    v1::CoordinatorMessage message;
    *message.mutable_run() = AssignmentLocked(record, static_cast<int>(rank), resume_step);
    worker.session->Send(message);
  }
}

v1::RankAssignment Controller::AssignmentLocked(const JobRecord& record, int global_rank,
                                                std::optional<int64_t> resume_step) {
  const v1::TrainingJobStatus& status = record.job.status();
  v1::RankAssignment assignment;
  assignment.set_job(record.job.name());
  assignment.set_job_uid(record.job.uid());
  assignment.set_epoch(status.epoch());
  *assignment.mutable_spec() = record.job.spec();
  *assignment.mutable_coordinates() = status.placement(global_rank).coordinates();
  assignment.set_collective_timeout_ms(absl::ToInt64Milliseconds(options_.collective_timeout));
  if (resume_step.has_value()) assignment.set_resume_step(*resume_step);
  const plan::MeshSize mesh = MeshOf(record.job.spec().mesh());
  for (plan::GroupAxis axis : plan::kGroupAxes) {
    const plan::Group group = plan::GroupOf(mesh, global_rank, axis);
    v1::GroupAssignment& part = *assignment.add_groups();
    part.set_name(group.name);
    part.set_axis(plan::GroupAxisName(axis));
    part.set_group_rank(group.group_rank);
    for (int member : group.members) {
      const std::string& worker = status.placement(member).worker();
      v1::GroupMember& entry = *part.add_members();
      entry.set_global_rank(member);
      entry.set_worker(worker);
      entry.set_address(registry_.Find(worker)->address);
    }
  }
  return assignment;
}

}  // namespace tessera
