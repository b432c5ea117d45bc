#include "coordinator/job_plan.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/job_memory.h"
#include "coordinator/spec_layout.h"
#include "coordinator/spec_validation.h"
#include "plan/mesh.h"
#include "plan/pipeline_formulas.h"
#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulation.h"
#include "plan/pipeline_timeline.h"
#include "plan/sequence_split.h"
#include "plan/stage_partition.h"
#include "plan/step_traffic.h"
#include "plan/timeline_svg.h"
#include "plan/trace_events.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

constexpr char kAssumption[] =
    "a chunk's forward, input gradient and weight gradient for one micro-batch take one unit of "
    "time each, however many layers it has; messages take none";
constexpr plan::ChunkCosts kCosts = {
    .forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1, .send_latency_s = 0};

int SizeAlong(const plan::MeshSize& mesh, plan::GroupAxis axis) {
  switch (axis) {
    case plan::GroupAxis::kDp:
      return mesh.dp;
    case plan::GroupAxis::kCp:
      return mesh.cp;
    case plan::GroupAxis::kPp:
      return mesh.pp;
    case plan::GroupAxis::kTp:
      return mesh.tp;
    case plan::GroupAxis::kZero:
      return mesh.dp * mesh.cp;
  }
  return 1;
}

// Whether it is the first of its group along axis.
bool IsFirst(const plan::Coordinates& at, plan::GroupAxis axis) {
  switch (axis) {
    case plan::GroupAxis::kDp:
      return at.dp_rank == 0;
    case plan::GroupAxis::kCp:
      return at.cp_rank == 0;
    case plan::GroupAxis::kPp:
      return at.pp_rank == 0;
    case plan::GroupAxis::kTp:
      return at.tp_rank == 0;
    case plan::GroupAxis::kZero:
      return at.dp_rank == 0 && at.cp_rank == 0;
  }
  return false;
}

void AddMesh(const plan::MeshSize& mesh, v1::TrainingPlan& out) {
  out.set_axis_order(plan::kAxisOrder);
  out.mutable_mesh()->set_dp(mesh.dp);
  out.mutable_mesh()->set_cp(mesh.cp);
  out.mutable_mesh()->set_pp(mesh.pp);
  out.mutable_mesh()->set_tp(mesh.tp);
  out.set_world_size(mesh.world_size());
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const plan::Coordinates at = plan::CoordinatesOf(mesh, rank);
    v1::MeshCoordinates& coordinates = *out.add_ranks()->mutable_coordinates();
    coordinates.set_global_rank(at.global_rank);
    coordinates.set_dp_rank(at.dp_rank);
    coordinates.set_cp_rank(at.cp_rank);
    coordinates.set_pp_rank(at.pp_rank);
    coordinates.set_tp_rank(at.tp_rank);
  }
  for (plan::GroupAxis axis : plan::kGroupAxes) {
    if (SizeAlong(mesh, axis) == 1) continue;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      if (!IsFirst(plan::CoordinatesOf(mesh, rank), axis)) continue;
      const plan::Group group = plan::GroupOf(mesh, rank, axis);
      v1::PlannedGroup& planned = *out.add_groups();
      planned.set_name(group.name);
      planned.set_axis(plan::GroupAxisName(axis));
      for (int member : group.members) {
        planned.add_members(member);
        out.mutable_ranks(member)->add_groups(out.groups_size() - 1);
      }
    }
  }
}

void AddSequenceParts(const plan::MeshSize& mesh, int sequence_length, v1::TrainingPlan& out) {
  for (int cp_rank = 0; cp_rank < mesh.cp; ++cp_rank) {
    v1::PlannedSequencePart& part = *out.add_sequence_parts();
    part.set_cp_rank(cp_rank);
    for (const plan::PositionRange& range : plan::PiecesOf(mesh.cp, cp_rank, sequence_length)) {
      if (range.count == 0) continue;
      v1::PositionRange& piece = *part.add_pieces();
      piece.set_first(range.first);
      piece.set_count(range.count);
    }
  }
}

void AddTraffic(const v1::TrainingJobSpec& spec, const std::vector<plan::StageChunk>& chunks,
                v1::PlannedStage& stage) {
  const plan::StepTraffic traffic = plan::PredictStepTraffic(TrafficOf(spec, chunks));
  for (plan::GroupAxis axis : plan::kGroupAxes) {
    for (plan::TrafficKind kind : plan::kTrafficKinds) {
      const plan::TrafficCount& count = traffic.of(axis, kind);
      if (count.calls == 0) continue;
      v1::PredictedTraffic& predicted = *stage.add_traffic();
      predicted.set_axis(plan::GroupAxisName(axis));
      predicted.set_kind(plan::TrafficKindName(kind));
      predicted.set_calls(count.calls);
      predicted.set_bytes(count.bytes);
    }
  }
}

void AddStages(const v1::TrainingJobSpec& spec, const plan::ScheduleOptions& options,
               v1::TrainingPlan& out) {
  const std::vector<std::vector<plan::StageChunk>> stages = StagesOf(spec);
  const bool is_zero_bubble = options.schedule == plan::PipelineSchedule::kZeroBubbleH1;
  for (int pp_rank = 0; pp_rank < options.stages; ++pp_rank) {
    v1::PlannedStage& stage = *out.add_stages();
    stage.set_pp_rank(pp_rank);
    int64_t neighbours = 0;  // of all chunks, on other stages
    for (const plan::StageChunk& chunk : stages[pp_rank]) {
      v1::PlannedChunk& planned = *stage.add_chunks();
      planned.set_chunk(stage.chunks_size() - 1);
      planned.mutable_layers()->set_first(chunk.layers.first);
      planned.mutable_layers()->set_count(chunk.layers.count);
      planned.set_has_embedding(chunk.has_embedding);
      planned.set_has_head(chunk.has_head);
      neighbours += (chunk.has_embedding ? 0 : 1) + (chunk.has_head ? 0 : 1);
    }
    const int64_t computations = int64_t{options.micro_batches} * options.chunks;
    stage.set_computations(computations * (is_zero_bubble ? 3 : 2));
    stage.set_sends(options.micro_batches * neighbours);
    stage.set_peak_in_flight(plan::PeakInFlightFormula(options, pp_rank));
    stage.set_peak_in_flight_for_weights(plan::PeakInFlightForWeightsFormula(options, pp_rank));
    AddTraffic(spec, stages[pp_rank], stage);
  }
}

void AddMemory(const JobMemory& memory, v1::TrainingPlan& out) {
  for (v1::PlannedStage& stage : *out.mutable_stages()) {
    *stage.mutable_memory() = ToProto(memory.Fullest(stage.pp_rank()));
    if (const auto tiers = TiersToProto(memory.Fullest(stage.pp_rank())); tiers.has_value()) {
      *stage.mutable_tiers() = *tiers;
    }
  }
}

double FormulaIdleShare(const plan::ScheduleOptions& options) {
  const double idle = plan::BubbleFormula(options, kCosts);
  const double busy = static_cast<double>(options.micro_batches) * options.chunks *
                      (kCosts.forward_s + kCosts.backward_input_s + kCosts.backward_weight_s);
  return idle / (busy + idle);
}

// The schedule's times, and what it holds at once; nothing where it is too long.
absl::StatusOr<std::optional<plan::PipelineSimulation>> Simulate(
    const plan::ScheduleOptions& options) {
  const int64_t computations =
      int64_t{options.stages} * options.micro_batches * options.chunks;  // at most 2^24
  if (computations > kMaxSimulatedComputations) return std::nullopt;
  auto schedule = plan::MakeSchedule(options);
  if (!schedule.ok()) return schedule.status();
  auto simulation = plan::SimulatePipeline(*schedule, kCosts);
  if (!simulation.ok()) return simulation.status();
  return *std::move(simulation);
}

void AddSchedule(const plan::ScheduleOptions& options, int64_t micro_batch_size,
                 const std::optional<plan::PipelineSimulation>& simulation, v1::TrainingPlan& out) {
  v1::PlannedSchedule& schedule = *out.mutable_schedule();
  schedule.set_schedule(ToProto(options.schedule));
  schedule.set_chunks(options.chunks);
  schedule.set_micro_batches(options.micro_batches);
  schedule.set_micro_batch_size(static_cast<int32_t>(micro_batch_size));
  schedule.set_formula_idle_share(FormulaIdleShare(options));
  schedule.set_assumption(kAssumption);
  if (!simulation) return;
  schedule.set_simulated_idle_share(simulation->idle_share);
  for (v1::PlannedStage& stage : *out.mutable_stages()) {
    const plan::SimulatedStage& simulated = simulation->stages[stage.pp_rank()];
    stage.set_peak_in_flight(simulated.peak_in_flight);
    stage.set_peak_in_flight_for_weights(simulated.peak_in_flight_for_weights);
    stage.set_simulated_idle_share(simulated.idle_share);
  }
}

absl::StatusOr<std::string> Draw(v1::TimelineFormat format, const plan::ScheduleOptions& options,
                                 const std::optional<plan::PipelineSimulation>& simulation) {
  int64_t actions = 0;
  if (simulation) {
    for (const plan::SimulatedStage& stage : simulation->stages) {
      actions += static_cast<int64_t>(stage.slices.size());
    }
  }
  if (!simulation || actions > kMaxDrawnActions) {
    return InvalidField("timeline", v1::TimelineFormat_Name(format),
                        absl::StrCat("a schedule of ", options.stages, " stages, ",
                                     options.micro_batches, " micro-batches and ", options.chunks,
                                     " chunks is not drawn: it has more "
                                     "than ",
                                     kMaxDrawnActions, " actions"));
  }
  std::string title =
      absl::StrCat(plan::PipelineScheduleName(options.schedule), ", ", options.stages, " stages, ",
                   options.micro_batches, " micro-batches");
  if (options.chunks > 1) absl::StrAppend(&title, ", ", options.chunks, " chunks");
  const plan::Timeline timeline = plan::TimelineOf(*simulation, std::move(title));
  if (format == v1::TIMELINE_FORMAT_SVG) return plan::TimelineSvg(timeline);
  return plan::TraceEventsJson(timeline);
}

}  // namespace

absl::StatusOr<v1::PlanTrainingJobResponse> PlanJob(const v1::PlanTrainingJobRequest& request,
                                                    int num_threads) {
  if (!request.has_spec()) return InvalidField("spec", "", "required");
  const v1::TrainingJobSpec& spec = request.spec();
  if (absl::Status status = ValidateSpec(spec); !status.ok()) return status;
  if (!v1::TimelineFormat_IsValid(request.timeline())) {
    return InvalidField("timeline", absl::StrCat(request.timeline()),
                        "is not a value of this enum");
  }
  const plan::MeshSize mesh = MeshOf(spec.mesh());
  const plan::ScheduleOptions options = ScheduleOf(spec);
  v1::PlanTrainingJobResponse response;
  v1::TrainingPlan& out = *response.mutable_plan();
  AddMesh(mesh, out);
  AddSequenceParts(mesh, spec.data().sequence_length(), out);
  AddStages(spec, options, out);
  AddMemory(JobMemory(spec, num_threads), out);
  auto simulation = Simulate(options);
  if (!simulation.ok()) return simulation.status();
  AddSchedule(options, MicroBatchSizeOf(spec), *simulation, out);
  if (request.timeline() != v1::TIMELINE_FORMAT_UNSPECIFIED) {
    absl::StatusOr<std::string> timeline = Draw(request.timeline(), options, *simulation);
    if (!timeline.ok()) return timeline.status();
    response.set_timeline(*std::move(timeline));
  }
  return response;
}

}  // namespace tessera
