#include "plan/layout_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "plan/layout_check.h"

namespace tessera::plan {
namespace {

using enum LayoutField;

// Divisors of any batch below its square are found.
constexpr int64_t kMaxTrialDivisor = int64_t{1} << 16;

LayoutRequest CheckRequestOf(const LayoutJob& job) {
  const TrafficRequest& traffic = job.request.job;
  LayoutRequest request;
  request.mesh = traffic.mesh;
  request.layers = traffic.model.layers;
  request.heads = traffic.model.heads;
  request.kv_heads = traffic.model.kv_heads;
  request.intermediate_size = traffic.model.intermediate_size;
  request.sequence_length = traffic.sequence_length;
  request.micro_batch_size = traffic.micro_batch_size;
  request.sequence_parallel = traffic.sequence_parallel;
  request.is_ulysses = traffic.context_parallel == ContextParallelAttention::kUlysses;
  request.schedule = job.request.schedule;
  request.chunk_layers = job.chunk_layers;
  return request;
}

std::vector<int64_t> DivisorsOf(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i <= kMaxTrialDivisor && i <= number / i; ++i) {
    if (number % i != 0) continue;
    divisors.push_back(i);
    if (i != number / i) divisors.push_back(number / i);
  }
  return divisors;
}

std::vector<int64_t> Range(int64_t first, int64_t last) {
  std::vector<int64_t> range;
  for (int64_t i = first; i <= last; ++i) range.push_back(i);
  return range;
}

// Before what the job has, and what is too large, is left out.
std::vector<int64_t> CandidatesOf(const LayoutJob& job, LayoutField field, int ranks) {
  const TrafficRequest& traffic = job.request.job;
  switch (field) {
    case kZeroStage:
      return Range(traffic.zero_stage + 1, 3);
    case kRecompute:
      return Range(static_cast<int64_t>(traffic.recompute) + 1,
                   static_cast<int64_t>(RecomputeKind::kFull));
    case kGradientReduction:
      if (traffic.clips_before_reduce) return {};  // whole gradients are clipped once
      return {static_cast<int64_t>(GradientReduction::kPerMicroBatch)};
    case kMicroBatches:
      return DivisorsOf(job.global_batch_size());
    case kDp:
      return DivisorsOf(job.global_batch_size());
    case kCp:
      return DivisorsOf(traffic.sequence_length);
    case kPp:
      return Range(1, std::min<int64_t>(traffic.model.layers, ranks));
    case kTp:
      return DivisorsOf(traffic.model.heads);
  }
  return {};
}

}  // namespace

const char* LayoutFieldName(LayoutField field) {
  switch (field) {
    case kZeroStage:
      return "spec.zero_stage";
    case kRecompute:
      return "spec.recompute";
    case kGradientReduction:
      return "spec.gradient_reduction";
    case kMicroBatches:
      return "spec.batch.micro_batches";
    case kDp:
      return "spec.mesh.dp";
    case kCp:
      return "spec.mesh.cp";
    case kPp:
      return "spec.mesh.pp";
    case kTp:
      return "spec.mesh.tp";
  }
  return "unknown";
}

bool IsAxis(LayoutField field) {
  return field == kDp || field == kCp || field == kPp || field == kTp;
}

LayoutChoice LayoutChoice::Of(const LayoutJob& job) {
  const TrafficRequest& traffic = job.request.job;
  LayoutChoice choice;
  choice.Set(kZeroStage, traffic.zero_stage);
  choice.Set(kRecompute, static_cast<int64_t>(traffic.recompute));
  choice.Set(kGradientReduction, static_cast<int64_t>(traffic.gradient_reduction));
  choice.Set(kMicroBatches, traffic.micro_batches);
  choice.Set(kDp, traffic.mesh.dp);
  choice.Set(kCp, traffic.mesh.cp);
  choice.Set(kPp, traffic.mesh.pp);
  choice.Set(kTp, traffic.mesh.tp);
  return choice;
}

MeshSize LayoutChoice::mesh() const {
  return {static_cast<int>(of(kDp)), static_cast<int>(of(kCp)), static_cast<int>(of(kPp)),
          static_cast<int>(of(kTp))};
}

std::optional<LayoutJob> LayoutChoice::ApplyTo(const LayoutJob& job, int ranks) const {
  int64_t size = 1;
  for (const LayoutField axis : {kDp, kCp, kPp, kTp}) {
    size *= of(axis);
    if (size > ranks) return std::nullopt;
  }
  const int64_t parts = of(kDp) * of(kMicroBatches), batch = job.global_batch_size();
  if (batch % parts != 0 || !CheckMesh(mesh()).ok()) return std::nullopt;
  LayoutJob changed = job;
  TrafficRequest& traffic = changed.request.job;
  if (of(kPp) != traffic.mesh.pp) changed.chunk_layers.clear();
  traffic.mesh = mesh();
  traffic.zero_stage = static_cast<int>(of(kZeroStage));
  traffic.recompute = static_cast<RecomputeKind>(of(kRecompute));
  traffic.gradient_reduction = static_cast<GradientReduction>(of(kGradientReduction));
  traffic.micro_batches = of(kMicroBatches);
  traffic.micro_batch_size = batch / parts;
  changed.request.schedule.stages = traffic.mesh.pp;
  changed.request.schedule.micro_batches = static_cast<int>(traffic.micro_batches);
  if (CheckLayout(CheckRequestOf(changed))) return std::nullopt;
  return changed;
}

double AmountOfChange(LayoutField field, int64_t from, int64_t to) {
  if (field == kMicroBatches || IsAxis(field)) {
    return std::abs(std::log2(static_cast<double>(to) / static_cast<double>(from)));
  }
  return static_cast<double>(std::abs(to - from));
}

std::vector<int64_t> ValuesOf(const LayoutJob& job, LayoutField field, int ranks) {
  const int64_t now = LayoutChoice::Of(job).of(field);
  const int64_t least = field == kMicroBatches ? now + 1 : 0;
  const int64_t most = IsAxis(field) ? ranks : kMaxComputations;
  std::vector<int64_t> values = CandidatesOf(job, field, ranks);
  std::erase_if(values,
                [&](int64_t value) { return value == now || value < least || value > most; });
  std::sort(values.begin(), values.end(), [&](int64_t a, int64_t b) {
    const double of_a = AmountOfChange(field, now, a), of_b = AmountOfChange(field, now, b);
    return of_a != of_b ? of_a < of_b : a > b;
  });
  if (values.size() > kMaxFieldValues) values.resize(kMaxFieldValues);
  return values;
}

std::vector<std::vector<StageChunk>> StagesOf(const LayoutJob& job) {
  const ScheduleOptions& schedule = job.request.schedule;
  const TrafficRequest& traffic = job.request.job;
  return *PartitionStages(static_cast<int>(traffic.model.layers), schedule.stages, schedule.chunks,
                          job.chunk_layers, LayerCostsOf(traffic.model, traffic.sequence_length));
}

}  // namespace tessera::plan
