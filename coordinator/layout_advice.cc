#include "coordinator/layout_advice.h"

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
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

// A worker for each rank of the job, and those that are as large.
plan::LayoutSearchRequest SearchOf(const v1::TrainingJobSpec& spec,
                                   std::vector<int64_t> memory_bytes, int num_threads) {
  std::sort(memory_bytes.begin(), memory_bytes.end(), std::greater<>());
  plan::LayoutSearchRequest request;
  request.job = LayoutJobOf(spec, num_threads);
  request.capacity_bytes = memory_bytes[MeshOf(spec.mesh()).world_size() - 1];
  request.ranks =
      static_cast<int>(std::count_if(memory_bytes.begin(), memory_bytes.end(), [&](int64_t bytes) {
        return bytes >= request.capacity_bytes;
      }));
  return request;
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
                                        const std::vector<int64_t>& memory_bytes, int num_threads) {
  std::vector<std::string> layouts;
  for (const plan::FittingLayout& layout :
       plan::FindFittingLayouts(SearchOf(spec, memory_bytes, num_threads))) {
    const v1::TrainingJobSpec changed = ChangedSpec(spec, layout);
    if (!ValidateSpec(changed).ok()) continue;  // of rules that a layout alone does not tell
    layouts.push_back(absl::StrCat("# pp_rank ", layout.worst_pp_rank,
                                   " needs most: ", BytesText(layout.ledger.needed_bytes()), ": ",
                                   CategoriesText(layout.ledger), "\n",
                                   JobFileLines(spec, changed, layout)));
  }
  return layouts;
}

}  // namespace tessera
