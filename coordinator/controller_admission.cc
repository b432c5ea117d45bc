// Controller: which job gets which workers.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/memory_shortage.h"
#include "coordinator/placement.h"
#include "coordinator/spec_layout.h"
#include "plan/mesh.h"

namespace tessera {

int Controller::MostThreads() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return FleetLocked().most_threads;
}

Controller::Fleet Controller::FleetLocked() const {
  Fleet fleet;
  for (const auto& [name, worker] : registry_.workers()) {
    if (!worker.attached() || worker.info.state() == v1::WORKER_STATE_STOPPING) continue;
    fleet.memory_bytes.push_back(worker.info.device_memory_bytes());
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
  if (fleet.memory_bytes.size() < world_size) return absl::OkStatus();
  const JobMemory memory(spec, fleet.most_threads);
  const std::optional<MemoryShortage> shortage =
      FindShortage(memory.NeededBytes(), fleet.memory_bytes);
  if (!shortage.has_value()) return absl::OkStatus();
  return InsufficientMemory(spec, memory, *shortage, fleet.memory_bytes);
}

bool Controller::TellShortageLocked(JobRecord& record, const Fleet& fleet) {
  const std::optional<MemoryShortage> shortage =
      FindShortage(record.memory->NeededBytes(), fleet.memory_bytes);
  if (!shortage.has_value()) return false;
  if (record.job.status().conditions().rbegin()->reason() != kInsufficientDeviceMemory) {
    TransitionLocked(record, v1::JOB_STATE_PENDING, kInsufficientDeviceMemory,
                     ShortageText(*record.memory, *shortage, fleet.memory_bytes.size()));
  }
  return true;
}

void Controller::ScheduleLocked() {
  if (shut_down_) return;
  // First come, first served: a job that does not fit yet is not overtaken by a later one, so that
  // a large job is not starved by small ones. But one for which the attached workers are too small,
  // even when all are idle, holds up nobody: no job's end will help it.
  std::vector<JobRecord*> pending;
  for (auto& [name, record] : jobs_) {
    if (record.job.status().state() == v1::JOB_STATE_PENDING) pending.push_back(&record);
  }
  std::sort(pending.begin(), pending.end(), [](const JobRecord* a, const JobRecord* b) {
    using google::protobuf::util::TimeUtil;
    const int64_t time_a = TimeUtil::TimestampToNanoseconds(a->job.create_time());
    const int64_t time_b = TimeUtil::TimestampToNanoseconds(b->job.create_time());
    return std::tie(time_a, a->job.name()) < std::tie(time_b, b->job.name());
  });
  const Fleet fleet = FleetLocked();
  for (JobRecord* record : pending) {
    const plan::MeshSize mesh = MeshOf(record->job.spec().mesh());
    if (static_cast<int>(fleet.memory_bytes.size()) < mesh.world_size()) break;
    if (!record->memory.has_value() || record->memory->num_threads() != fleet.most_threads) {
      record->memory.emplace(record->job.spec(), fleet.most_threads);
    }
    if (TellShortageLocked(*record, fleet)) continue;
    absl::StatusOr<std::vector<std::string>> workers =
        PlaceRanks(mesh, record->memory->NeededBytes(), registry_.IdleWorkers());
    if (!workers.ok()) break;
    AssignLocked(*record, *workers);
  }
}

void Controller::AssignLocked(JobRecord& record, const std::vector<std::string>& workers) {
  const plan::MeshSize mesh = MeshOf(record.job.spec().mesh());
  v1::TrainingJobStatus& status = *record.job.mutable_status();
  status.set_epoch(status.epoch() + 1);
  status.clear_placement();
  status.clear_memory();
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
    v1::RankMemory& memory = *status.add_memory();
    memory.set_global_rank(at.global_rank);
    *memory.mutable_predicted() = ToProto(record.memory->OfLayout(at.global_rank));
  }
  record.memory.reset();
  TransitionLocked(record, v1::JOB_STATE_ADMITTED, "PLACED",
                   absl::StrCat("on ", workers.size(), " workers"));
  record.active = std::make_unique<ActiveJob>(record.job.uid(), status.epoch(), status.placement(),
                                              /*formed=*/false);

  for (size_t rank = 0; rank < workers.size(); ++rank) {
    v1::CoordinatorMessage message;
    v1::RankAssignment& assignment = *message.mutable_run();
    assignment.set_job(record.job.name());
    assignment.set_job_uid(record.job.uid());
    assignment.set_epoch(status.epoch());
    *assignment.mutable_spec() = record.job.spec();
    *assignment.mutable_coordinates() = status.placement(static_cast<int>(rank)).coordinates();
    assignment.set_collective_timeout_ms(absl::ToInt64Milliseconds(options_.collective_timeout));
    for (plan::GroupAxis axis : plan::kGroupAxes) {
      const plan::Group group = plan::GroupOf(mesh, static_cast<int>(rank), axis);
      v1::GroupAssignment& part = *assignment.add_groups();
      part.set_name(group.name);
      part.set_axis(plan::GroupAxisName(axis));
      part.set_group_rank(group.group_rank);
      for (int member : group.members) {
        v1::GroupMember& entry = *part.add_members();
        entry.set_global_rank(member);
        entry.set_worker(workers[member]);
        entry.set_address(registry_.Find(workers[member])->address);
      }
    }
    WorkerEntry& worker = *registry_.Find(workers[rank]);
    worker.job_uid = record.job.uid();
    worker.epoch = status.epoch();
    worker.info.set_state(v1::WORKER_STATE_BUSY);
    worker.info.set_training_job(record.job.name());
    worker.session->Send(message);
  }
}

}  // namespace tessera
