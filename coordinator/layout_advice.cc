#include "coordinator/layout_advice.h"

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "coordinator/job_memory.h"
#include "coordinator/spec_layout.h"
#include "coordinator/spec_validation.h"
#include "plan/layout_choice.h"
#include "plan/layout_search.h"

namespace tessera {
namespace {

using plan::LayoutField;

std::string HumanBytes(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1000 && unit < 4; ++unit) value /= 1000;
  return absl::StrFormat("%.3g %s", value, units[unit]);
}

// Of the rank that needs most.
plan::LayoutJob LayoutJobOf(const v1::TrainingJobSpec& spec, int num_threads) {
  plan::LayoutJob job;
  job.request = LedgerOf(spec, {}, 0);
  job.request.num_threads = num_threads;
  job.request.samples = spec.has_sample();
  job.request.traces = spec.has_trace();
  job.request.job.zero_stage = spec.zero_stage();  // a larger group may have something to shard
  job.chunk_layers.assign(spec.chunk_layers().begin(), spec.chunk_layers().end());
  return job;
}

plan::LayoutSearchRequest SearchOf(const v1::TrainingJobSpec& spec,
                                   const std::vector<TierBytes>& has, int num_threads) {
  plan::LayoutSearchRequest request;
  request.job = LayoutJobOf(spec, num_threads);
  for (const TierBytes& worker : has) request.device_bytes.push_back(worker.device);
  return request;
}

bool Fits(const JobMemory& memory, const std::vector<TierBytes>& has) {
  return memory.mesh().world_size() <= static_cast<int>(has.size()) &&
         !FindShortage(memory.Needs(), has).has_value();
}

v1::Recompute ToProto(plan::RecomputeKind recompute) {
  switch (recompute) {
    case plan::RecomputeKind::kNone:
      return v1::RECOMPUTE_NONE;
    case plan::RecomputeKind::kAttention:
      return v1::RECOMPUTE_ATTENTION;
    case plan::RecomputeKind::kFull:
      return v1::RECOMPUTE_FULL;
  }
  return v1::RECOMPUTE_UNSPECIFIED;
}

bool Changes(const plan::FittingLayout& layout, LayoutField field) {
  return std::find(layout.changed.begin(), layout.changed.end(), field) != layout.changed.end();
}

bool ChangesMesh(const plan::FittingLayout& layout) {
  return std::any_of(layout.changed.begin(), layout.changed.end(), plan::IsAxis);
}

v1::TrainingJobSpec ChangedSpec(const v1::TrainingJobSpec& spec,
                                const plan::FittingLayout& layout) {
  const plan::TrafficRequest& job = layout.job.request.job;
  v1::TrainingJobSpec changed = spec;
  changed.mutable_mesh()->set_dp(job.mesh.dp);
  changed.mutable_mesh()->set_cp(job.mesh.cp);
  changed.mutable_mesh()->set_pp(job.mesh.pp);
  changed.mutable_mesh()->set_tp(job.mesh.tp);
  if (layout.job.chunk_layers.empty()) changed.clear_chunk_layers();
  if (Changes(layout, LayoutField::kZeroStage)) changed.set_zero_stage(job.zero_stage);
  if (Changes(layout, LayoutField::kRecompute)) changed.set_recompute(ToProto(job.recompute));
  if (Changes(layout, LayoutField::kGradientReduction)) {
    changed.set_gradient_reduction(v1::GRADIENT_REDUCTION_PER_MICRO_BATCH);
  }
  if (Changes(layout, LayoutField::kMicroBatches)) {
    changed.mutable_batch()->set_micro_batches(static_cast<int>(job.micro_batches));
  }
  return changed;
}

// Lines of the job file that differ from the spec's.
std::string JobFileLines(const v1::TrainingJobSpec& spec, const v1::TrainingJobSpec& changed,
                         const plan::FittingLayout& layout) {
  std::string text;
  if (ChangesMesh(layout)) {
    absl::StrAppendFormat(&text, "mesh: {dp: %d, cp: %d, pp: %d, tp: %d}\n", changed.mesh().dp(),
                          changed.mesh().cp(), changed.mesh().pp(), changed.mesh().tp());
  }
  if (spec.chunk_layers_size() > 0 && changed.chunk_layers_size() == 0) {
    absl::StrAppend(&text, "chunk_layers: []\n");
  }
  if (Changes(layout, LayoutField::kZeroStage)) {
    absl::StrAppend(&text, "zero_stage: ", changed.zero_stage(), "\n");
  }
  if (Changes(layout, LayoutField::kRecompute)) {
    absl::string_view name = v1::Recompute_Name(changed.recompute());
    absl::ConsumePrefix(&name, "RECOMPUTE_");
    absl::StrAppend(&text, "recompute: ", absl::AsciiStrToLower(name), "\n");
  }
  if (Changes(layout, LayoutField::kGradientReduction)) {
    absl::StrAppend(&text, "gradient_reduction: per_micro_batch\n");
  }
  if (Changes(layout, LayoutField::kMicroBatches)) {
    absl::StrAppendFormat(&text, "batch: {global_batch_size: %d, micro_batches: %d}\n",
                          changed.batch().global_batch_size(), changed.batch().micro_batches());
  }
  return text;
}

// Moves the state to the tier, all of it, unless it is as far away already.
void Move(v1::Tier tier, v1::StateOffload& state) {
  if (state.tier() > tier) return;
  state.set_tier(tier);
  state.clear_fraction();
}

// The spec with its optimizer state, and with kinds > 1 its gradients and then its parameters, on
// the tier.
v1::TrainingJobSpec Offloaded(v1::TrainingJobSpec spec, v1::Tier tier, int kinds) {
  v1::OffloadSpec& offload = *spec.mutable_offload();
  Move(tier, *offload.mutable_optimizer());
  if (kinds > 1) Move(tier, *offload.mutable_gradients());
  if (kinds > 2) Move(tier, *offload.mutable_parameters());
  return spec;
}

std::string OffloadLine(const v1::OffloadSpec& offload) {
  std::vector<std::string> parts;
  auto add = [&](absl::string_view name, bool is_there, const v1::StateOffload& state) {
    if (!is_there) return;
    std::string text = absl::StrCat(name, ": {tier: ", plan::TierName(OffloadOf(state).tier));
    if (state.has_fraction()) absl::StrAppend(&text, ", fraction: ", state.fraction());
    parts.push_back(text + "}");
  };
  add("optimizer", offload.has_optimizer(), offload.optimizer());
  add("gradients", offload.has_gradients(), offload.gradients());
  add("parameters", offload.has_parameters(), offload.parameters());
  if (offload.activations()) parts.emplace_back("activations: true");
  if (offload.has_buffers()) parts.push_back(absl::StrCat("buffers: ", offload.buffers()));
  if (offload.has_buffer_bytes()) {
    parts.push_back(absl::StrCat("buffer_bytes: ", offload.buffer_bytes()));
  }
  return absl::StrCat("offload: {", absl::StrJoin(parts, ", "), "}\n");
}

// Of the rank that needs most of its device.
std::string NeedsText(const JobMemory& memory) {
  int worst = 0;
  for (int pp_rank = 1; pp_rank < memory.mesh().pp; ++pp_rank) {
    const bool is_worse =
        memory.Fullest(pp_rank).needed_bytes() > memory.Fullest(worst).needed_bytes();
    if (is_worse) worst = pp_rank;
  }
  const plan::RankLedger& ledger = memory.Fullest(worst);
  std::string text =
      absl::StrCat("# pp_rank ", worst, " needs most: device ", BytesText(ledger.needed_bytes()),
                   ", host ", BytesText(ledger.host_bytes));
  if (ledger.nvme_bytes > 0) absl::StrAppend(&text, ", nvme ", BytesText(ledger.nvme_bytes));
  return text + "\n";
}

}  // namespace

std::string BytesText(int64_t bytes) {
  return absl::StrCat(HumanBytes(bytes), " (", bytes, " bytes)");
}

std::string CategoriesText(const plan::RankLedger& ledger) {
  std::string text;
  for (const plan::LedgerCategory category : plan::kLedgerCategories) {
    if (ledger.of(category) == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", plan::LedgerCategoryName(category), " ",
                    HumanBytes(ledger.of(category)));
  }
  if (ledger.headroom_bytes > 0) {
    absl::StrAppend(&text, ", headroom ", HumanBytes(ledger.headroom_bytes));
  }
  return text;
}

std::vector<std::string> LayoutsThatFit(const v1::TrainingJobSpec& spec,
                                        const std::vector<TierBytes>& has, int num_threads) {
  std::vector<std::string> layouts;
  for (const plan::FittingLayout& layout :
       plan::FindFittingLayouts(SearchOf(spec, has, num_threads))) {
    const v1::TrainingJobSpec changed = ChangedSpec(spec, layout);
    if (!ValidateSpec(changed).ok()) continue;  // of rules that a layout alone does not tell
    if (!Fits(JobMemory(changed, num_threads), has)) continue;  // on other tiers than the device
    layouts.push_back(absl::StrCat("# pp_rank ", layout.worst_pp_rank,
                                   " needs most: ", BytesText(layout.ledger.needed_bytes()), ": ",
                                   CategoriesText(layout.ledger), "\n",
                                   JobFileLines(spec, changed, layout)));
  }
  return layouts;
}

std::vector<std::string> OffloadsThatFit(const v1::TrainingJobSpec& spec,
                                         const std::vector<TierBytes>& has, int num_threads) {
  std::vector<std::string> offloads;
  for (const v1::Tier tier : {v1::TIER_HOST, v1::TIER_NVME}) {
    for (int kinds = 1; kinds <= 3; ++kinds) {
      const v1::TrainingJobSpec changed = Offloaded(spec, tier, kinds);
      if (!ValidateSpec(changed).ok()) continue;
      const JobMemory memory(changed, num_threads);
      if (!Fits(memory, has)) continue;
      offloads.push_back(absl::StrCat(NeedsText(memory), OffloadLine(changed.offload())));
      break;
    }
  }
  return offloads;
}

}  // namespace tessera
