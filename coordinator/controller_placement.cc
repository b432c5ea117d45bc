// Controller: where a job is, rank by rank.
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/controller.h"
#include "coordinator/job_state.h"
#include "coordinator/spec_layout.h"
#include "plan/mesh.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

void AddGroups(const plan::MeshSize& mesh, const v1::TrainingJobStatus& status, int rank,
               v1::RankDetail& detail) {
  for (plan::GroupAxis axis : plan::kGroupAxes) {
    const plan::Group group = plan::GroupOf(mesh, rank, axis);
    v1::GroupAssignment& part = *detail.add_groups();
    part.set_name(group.name);
    part.set_axis(plan::GroupAxisName(axis));
    part.set_group_rank(group.group_rank);
    for (int member : group.members) {
      part.add_members()->set_global_rank(member);
      part.mutable_members()->rbegin()->set_worker(status.placement(member).worker());
    }
  }
}

// As the rank has said, and is in every step.
void AddLiveShards(const ActiveJob::Rank& rank, int64_t step, v1::RankDetail& detail) {
  for (const v1::ShardPlacement& shard : rank.shards) {
    *detail.add_shards() = shard;
    detail.mutable_shards()->rbegin()->set_version(step);
  }
}

// All that is kept of the shards that it held: gradients are of no use after a step.
void AddSavedShards(const v1::RankShards& rank, int64_t step, v1::RankDetail& detail) {
  for (const v1::ShardPlacement& shard : rank.shards()) {
    if (shard.kind() == "gradients") continue;
    *detail.add_shards() = shard;
    detail.mutable_shards()->rbegin()->set_tier(plan::TierName(plan::Tier::kNvme));
    detail.mutable_shards()->rbegin()->set_version(step);
  }
}

}  // namespace

absl::StatusOr<v1::Placement> Controller::GetPlacement(const std::string& job) const {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<const JobRecord*> found = FindJobLocked(job, "training_job");
  if (!found.ok()) return found.status();
  const JobRecord& record = **found;
  const v1::TrainingJobStatus& status = record.job.status();
  if (status.placement().empty()) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(job, ": has no workers")),
                      "JOB_NOT_PLACED");
  }
  v1::Placement placement;
  placement.set_training_job(job);
  placement.set_state(status.state());
  placement.set_epoch(status.epoch());
  placement.set_axis_order(plan::kAxisOrder);
  const plan::MeshSize mesh = MeshOf(record.job.spec().mesh());
  const bool is_saved = !IsEnded(status.state()) && status.has_saved_step();
  for (int rank = 0; rank < status.placement_size(); ++rank) {
    v1::RankDetail& detail = *placement.add_ranks();
    *detail.mutable_coordinates() = status.placement(rank).coordinates();
    detail.set_worker(status.placement(rank).worker());
    auto worker = registry_.workers().find(detail.worker());
    detail.set_worker_state(worker == registry_.workers().end() ? v1::WORKER_STATE_LOST
                                                                : worker->second.info.state());
    AddGroups(mesh, status, rank, detail);
    if (record.active != nullptr) {
      AddLiveShards(record.active->ranks()[rank], status.progress().step(), detail);
    } else if (is_saved && rank < record.shards.ranks_size()) {
      AddSavedShards(record.shards.ranks(rank), status.saved_step(), detail);
    }
  }
  return placement;
}

}  // namespace tessera
