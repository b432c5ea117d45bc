// JobRun: what it tells the coordinator.
#include <utility>

#include "plan/offload.h"
#include "proto/rpc/status.h"
#include "worker/service/job_run.h"

namespace tessera {
namespace {

void AddTier(plan::Tier tier, const TierCounts& counts, v1::StepReport& report) {
  if (counts.read_bytes == 0 && counts.written_bytes == 0) return;
  v1::TierTraffic& traffic = *report.add_tier_traffic();
  traffic.set_tier(plan::TierName(tier));
  traffic.set_read_bytes(counts.read_bytes);
  traffic.set_written_bytes(counts.written_bytes);
  traffic.set_late_reads(counts.late_reads);
}

}  // namespace

void JobRun::ReportFormed(const Trainer& trainer) const {
  v1::WorkerMessage message;
  v1::GroupsFormed& formed = *message.mutable_groups_formed();
  formed.set_job_uid(assignment_.job_uid());
  formed.set_epoch(assignment_.epoch());
  for (const ShardInfo& shard : trainer.shards()) {
    v1::ShardPlacement& placement = *formed.add_shards();
    placement.set_unit(shard.unit);
    placement.set_kind(shard.kind);
    placement.set_offset_elements(shard.offset_elements);
    placement.set_size_elements(shard.size_elements);
    placement.set_size_bytes(shard.size_bytes);
    placement.set_tier(plan::TierName(shard.tier));
  }
  Report(std::move(message));
}

void JobRun::ReportMemory(const Trainer& trainer) const {
  const ArenaUsage usage = context_.device->arena().usage();
  auto peak = [&](MemoryCategory category) {
    return usage.category[static_cast<size_t>(category)].peak_bytes;
  };
  v1::WorkerMessage message;
  v1::MemoryReport& report = *message.mutable_memory();
  report.set_job_uid(assignment_.job_uid());
  report.set_epoch(assignment_.epoch());
  v1::DeviceMemory& memory = *report.mutable_peak();
  memory.set_parameters_bytes(peak(MemoryCategory::kParameters));
  memory.set_gradients_bytes(peak(MemoryCategory::kGradients));
  memory.set_optimizer_bytes(peak(MemoryCategory::kOptimizer));
  memory.set_activations_bytes(peak(MemoryCategory::kActivations));
  memory.set_communication_bytes(peak(MemoryCategory::kCommunication));
  memory.set_workspace_bytes(peak(MemoryCategory::kWorkspace));
  memory.set_total_bytes(usage.peak_bytes);
  const int64_t nvme_bytes = trainer.peak_nvme_bytes();
  Device* host = context_.tiers == nullptr ? nullptr : context_.tiers->tiers().host;
  const int64_t host_bytes = host == nullptr ? 0 : host->arena().usage().peak_bytes;
  if (host_bytes > 0 || nvme_bytes > 0) {
    report.mutable_peak_tiers()->set_host_bytes(host_bytes);
    report.mutable_peak_tiers()->set_nvme_bytes(nvme_bytes);
  }
  Report(std::move(message));
}

void JobRun::OnSuspendFailed(const absl::Status& status) {
  v1::WorkerMessage message;
  message.mutable_suspend_failed()->set_job_uid(assignment_.job_uid());
  message.mutable_suspend_failed()->set_epoch(assignment_.epoch());
  *message.mutable_suspend_failed()->mutable_status() = ToProto(status);
  Report(std::move(message));
}

void JobRun::OnStep(const StepResult& result) {
  if (context_.tiers != nullptr) context_.tiers->Count(result.host, result.nvme);
  if (result.step > 0 && unreported_ != nullptr) {
    ReportMemory(*std::exchange(unreported_, nullptr));
  }
  if (assignment_.coordinates().global_rank() != 0) return;
  if (assignment_.spec().has_verification() && result.step > 0) verified_steps_.push_back(result);
  if (is_reference_) return;  // those of the layout are told
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
  for (const TrafficLine& line : result.traffic) {
    v1::GroupTraffic& traffic = *report.add_traffic();
    traffic.set_axis(plan::GroupAxisName(line.axis));
    traffic.set_kind(CollectiveKindName(line.kind));
    traffic.set_calls(line.calls);
    traffic.set_bytes(line.bytes);
    traffic.set_predicted_calls(line.predicted_calls);
    traffic.set_predicted_bytes(line.predicted_bytes);
  }
  AddTier(plan::Tier::kHost, result.host, report);
  AddTier(plan::Tier::kNvme, result.nvme, report);
  if (result.step > 0) {
    v1::StepTime& time = *report.mutable_step_time();
    time.set_seconds(result.seconds);
    for (const TrafficLine& line : result.traffic) {
      time.set_communication_seconds(time.communication_seconds() + line.wait_seconds);
    }
    time.set_tier_wait_seconds(result.host.wait_seconds + result.nvme.wait_seconds);
  }
  Report(std::move(message));
}

}  // namespace tessera
