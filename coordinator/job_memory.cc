#include "coordinator/job_memory.h"

#include "coordinator/spec_layout.h"

namespace tessera {
namespace {

// Of the model that a verification trains on one rank, in micro-batches of the layout's size.
plan::LedgerRequest OneRankOf(const v1::TrainingJobSpec& spec) {
  plan::LedgerRequest request = LedgerOf(spec, {}, 0);
  request.job.micro_batches *= request.job.mesh.dp;
  request.job.mesh = {};
  request.job.chunks = {{{0, spec.model().layers()}, /*has_embedding=*/true, /*has_head=*/true}};
  request.job.schedule = plan::PipelineSchedule::k1f1b;
  request.job.sequence_parallel = false;
  request.job.context_parallel = plan::ContextParallelAttention::kRing;
  request.job.zero_stage = 0;
  request.job.gradient_reduction = plan::GradientReduction::kOnce;
  request.job.checks_replicated_gradients = false;
  request.schedule = {.schedule = plan::PipelineSchedule::k1f1b,
                      .stages = 1,
                      .micro_batches = static_cast<int>(request.job.micro_batches),
                      .chunks = 1};
  return request;
}

}  // namespace

v1::DeviceMemory ToProto(const plan::RankLedger& ledger) {
  v1::DeviceMemory memory;
  memory.set_parameters_bytes(ledger.of(plan::LedgerCategory::kParameters));
  memory.set_gradients_bytes(ledger.of(plan::LedgerCategory::kGradients));
  memory.set_optimizer_bytes(ledger.of(plan::LedgerCategory::kOptimizer));
  memory.set_activations_bytes(ledger.of(plan::LedgerCategory::kActivations));
  memory.set_communication_bytes(ledger.of(plan::LedgerCategory::kCommunication));
  memory.set_workspace_bytes(ledger.of(plan::LedgerCategory::kWorkspace));
  memory.set_total_bytes(ledger.total_bytes());
  return memory;
}

std::optional<v1::TierMemory> TiersToProto(const plan::RankLedger& ledger) {
  if (ledger.host_bytes == 0 && ledger.nvme_bytes == 0) return std::nullopt;
  v1::TierMemory tiers;
  tiers.set_host_bytes(ledger.host_bytes);
  tiers.set_nvme_bytes(ledger.nvme_bytes);
  return tiers;
}

JobMemory::JobMemory(const v1::TrainingJobSpec& spec, int num_threads)
    : mesh_(MeshOf(spec.mesh())), num_threads_(num_threads) {
  const std::vector<std::vector<plan::StageChunk>> stages = StagesOf(spec);
  plan::LedgerRequest request = LedgerOf(spec, {}, 0);
  request.num_threads = num_threads;
  const bool all_sample = spec.has_sample() && request.job.zero_stage == 3;
  request.samples = all_sample;
  others_ = plan::PredictLedgers(request, stages);
  request.samples = spec.has_sample();
  first_replica_ = request.samples == all_sample ? others_ : plan::PredictLedgers(request, stages);
  request.traces = spec.has_trace();
  first_ = request.traces ? plan::PredictLedgers(request, stages) : first_replica_;
  if (!spec.has_verification()) return;
  plan::LedgerRequest one_rank = OneRankOf(spec);
  one_rank.num_threads = num_threads;
  one_rank_ = plan::PredictLedger(one_rank);
}

const plan::RankLedger& JobMemory::OfLayout(int global_rank) const {
  const plan::Coordinates at = plan::CoordinatesOf(mesh_, global_rank);
  if (at.dp_rank != 0) return others_[at.pp_rank];
  return (at.cp_rank == 0 && at.tp_rank == 0 ? first_ : first_replica_)[at.pp_rank];
}

bool JobMemory::NeedsWholeModel(int global_rank) const {
  return global_rank == 0 && one_rank_.has_value() &&
         one_rank_->total_bytes() > first_[0].total_bytes();
}

const plan::RankLedger& JobMemory::Needed(int global_rank) const {
  return NeedsWholeModel(global_rank) ? *one_rank_ : OfLayout(global_rank);
}

std::vector<TierBytes> JobMemory::Needs() const {
  std::vector<TierBytes> needs;
  needs.reserve(mesh_.world_size());
  for (int rank = 0; rank < mesh_.world_size(); ++rank) {
    const plan::RankLedger& ledger = Needed(rank);
    needs.push_back({ledger.needed_bytes(), ledger.host_bytes, ledger.nvme_bytes});
  }
  return needs;
}

const plan::RankLedger& JobMemory::Fullest(int pp_rank) const {
  // Its first rank; global ranks are adjacent along tp, then pp.
  return Needed(pp_rank * mesh_.tp);
}

}  // namespace tessera
