#include "cli/plan_render.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "cli/memory_report.h"
#include "cli/render.h"
#include "cli/table.h"

namespace tessera {
namespace {

constexpr int kMaxRows = 32;         // of one table
constexpr int kMaxTrafficParts = 8;  // runs of stages with the same traffic
constexpr int kMaxMembers = 8;       // of one group
constexpr const char* kAxes[] = {"dp", "cp", "pp", "tp", "zero"};

int RowsOf(int rows, bool wide) { return wide ? rows : std::min(rows, kMaxRows); }

// Says what is missing of a list, after its table.
std::string LeftOut(int left_out, absl::string_view what) {
  if (left_out == 0) return "";
  return absl::StrCat("... and ", left_out, " more ", what, ": -o wide, json or yaml\n");
}

std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

// "3", or "0-2" for more than one.
std::string RangeText(int first, int count) {
  return count == 1 ? absl::StrCat(first) : absl::StrCat(first, "-", first + count - 1);
}

std::string MembersText(const v1::PlannedGroup& group) {
  const absl::Span<const int32_t> members(group.members().data(), group.members_size());
  if (group.members_size() <= kMaxMembers) return absl::StrJoin(members, " ");
  return absl::StrCat(absl::StrJoin(members.first(kMaxMembers / 2), " "), " ... ", members.back(),
                      " (", members.size(), ")");
}

std::string Summary(const v1::TrainingPlan& plan) {
  const v1::MeshSpec& mesh = plan.mesh();
  const v1::PlannedSchedule& schedule = plan.schedule();
  absl::string_view name = v1::PipelineSchedule_Name(schedule.schedule());
  absl::ConsumePrefix(&name, "PIPELINE_SCHEDULE_");
  std::string text;
  auto line = [&](absl::string_view key, const std::string& value) {
    absl::StrAppendFormat(&text, "%-10s %s\n", key, value);
  };
  line("Axes", absl::StrCat(plan.axis_order(), " (outermost first)"));
  line("Mesh", absl::StrCat("dp=", mesh.dp(), " cp=", mesh.cp(), " pp=", mesh.pp(),
                            " tp=", mesh.tp(), ", ", plan.world_size(), " ranks"));
  line("Schedule", absl::StrCat(absl::AsciiStrToLower(name), ", ", schedule.chunks(),
                                " chunks a stage, ", schedule.micro_batches(), " micro-batches of ",
                                schedule.micro_batch_size(), " sequences"));
  line("Bubble", absl::StrCat(schedule.has_simulated_idle_share()
                                  ? Percent(schedule.simulated_idle_share()) + " simulated, "
                                  : "too long to simulate, ",
                              Percent(schedule.formula_idle_share()), " by the formula"));
  line("", absl::StrCat("(", schedule.assumption(), ")"));
  return text;
}

std::string RankTable(const v1::TrainingPlan& plan, bool wide) {
  std::vector<std::string> header = {"RANK", "DP", "CP", "PP", "TP"};
  std::vector<std::string> axes;  // that have groups
  for (const char* axis : kAxes) {
    const bool is_there =
        std::any_of(plan.groups().begin(), plan.groups().end(),
                    [&](const v1::PlannedGroup& group) { return group.axis() == axis; });
    if (!is_there) continue;
    axes.push_back(axis);
    header.push_back(absl::StrCat(absl::AsciiStrToUpper(axis), " GROUP"));
  }
  Table table(header);
  const int rows = RowsOf(plan.ranks_size(), wide);
  for (int i = 0; i < rows; ++i) {
    const v1::MeshCoordinates& at = plan.ranks(i).coordinates();
    std::vector<std::string> row = {absl::StrCat(at.global_rank()), absl::StrCat(at.dp_rank()),
                                    absl::StrCat(at.cp_rank()), absl::StrCat(at.pp_rank()),
                                    absl::StrCat(at.tp_rank())};
    for (const std::string& axis : axes) {
      row.emplace_back("-");
      for (const int index : plan.ranks(i).groups()) {
        if (index < 0 || index >= plan.groups_size()) continue;
        const v1::PlannedGroup& group = plan.groups(index);
        if (group.axis() == axis) row.back() = MembersText(group);
      }
    }
    table.Add(row);
  }
  return absl::StrCat(table.ToString(), LeftOut(plan.ranks_size() - rows, "ranks"));
}

std::string StageTable(const v1::TrainingPlan& plan, bool wide) {
  const int chunks = std::max(1, plan.schedule().chunks());
  Table table({"STAGE", "LAYERS", "COMPUTATIONS", "SENDS", "IN FLIGHT", "FOR WEIGHTS", "IDLE"});
  const int rows = RowsOf(plan.stages_size(), wide);
  for (int i = 0; i < rows; ++i) {
    const v1::PlannedStage& stage = plan.stages(i);
    std::string layers;
    for (const v1::PlannedChunk& chunk : stage.chunks()) {
      absl::StrAppend(&layers, layers.empty() ? "" : "; ",
                      chunk.has_embedding() ? "embedding, " : "",
                      RangeText(chunk.layers().first(), chunk.layers().count()),
                      chunk.has_head() ? ", head" : "");
    }
    auto micro_batches = [&](int pairs) {
      return absl::StrFormat("%.4g", static_cast<double>(pairs) / chunks);
    };
    table.Add({absl::StrCat(stage.pp_rank()), layers, absl::StrCat(stage.computations()),
               absl::StrCat(stage.sends()), micro_batches(stage.peak_in_flight()),
               micro_batches(stage.peak_in_flight_for_weights()),
               stage.has_simulated_idle_share() ? Percent(stage.simulated_idle_share()) : "-"});
  }
  return absl::StrCat(
      "Stages; in flight: micro-batches held at once, until backward and until the weight "
      "gradient\n",
      table.ToString(), LeftOut(plan.stages_size() - rows, "stages"));
}

std::string MemoryTable(const v1::TrainingPlan& plan, bool wide) {
  const int rows = RowsOf(plan.stages_size(), wide);
  const bool has_other_tiers =
      std::any_of(plan.stages().begin(), plan.stages().end(),
                  [](const v1::PlannedStage& stage) { return stage.has_tiers(); });
  return absl::StrCat("Device memory of the rank of each stage that needs most",
                      has_other_tiers ? ", and what it holds elsewhere" : "", "\n",
                      StageMemoryTable(plan, rows), LeftOut(plan.stages_size() - rows, "stages"));
}

std::string PositionTable(const v1::TrainingPlan& plan, bool wide) {
  Table table({"CP RANK", "POSITIONS"});
  const int rows = RowsOf(plan.sequence_parts_size(), wide);
  for (int i = 0; i < rows; ++i) {
    const v1::PlannedSequencePart& part = plan.sequence_parts(i);
    table.Add(
        {absl::StrCat(part.cp_rank()),
         absl::StrJoin(part.pieces(), ", ", [](std::string* out, const v1::PositionRange& piece) {
           absl::StrAppend(out, RangeText(piece.first(), piece.count()));
         })});
  }
  return absl::StrCat(table.ToString(), LeftOut(plan.sequence_parts_size() - rows, "cp ranks"));
}

bool HaveSameTraffic(const v1::PlannedStage& a, const v1::PlannedStage& b) {
  return std::equal(a.traffic().begin(), a.traffic().end(), b.traffic().begin(), b.traffic().end(),
                    [](const v1::PredictedTraffic& x, const v1::PredictedTraffic& y) {
                      return x.axis() == y.axis() && x.kind() == y.kind() &&
                             x.calls() == y.calls() && x.bytes() == y.bytes();
                    });
}

std::string TrafficTable(const v1::TrainingPlan& plan, bool wide) {
  Table table({"STAGE", "AXIS", "KIND", "CALLS", "BYTES"});
  int first = 0;  // neighbours with the same traffic share their lines
  for (int i = 0; first < plan.stages_size() && (wide || i < kMaxTrafficParts); ++i) {
    const v1::PlannedStage& stage = plan.stages(first);
    int end = first + 1;
    while (end < plan.stages_size() && HaveSameTraffic(stage, plan.stages(end))) ++end;
    for (const v1::PredictedTraffic& traffic : stage.traffic()) {
      table.Add({RangeText(first, end - first), traffic.axis(), traffic.kind(),
                 absl::StrCat(traffic.calls()), HumanBytes(static_cast<double>(traffic.bytes()))});
    }
    first = end;
  }
  return absl::StrCat("Traffic of each rank in one step\n", table.ToString(),
                      LeftOut(plan.stages_size() - first, "stages"));
}

}  // namespace

std::string PlanTable(const v1::TrainingPlan& plan, bool wide) {
  std::vector<std::string> parts = {Summary(plan), RankTable(plan, wide), StageTable(plan, wide)};
  if (plan.sequence_parts_size() > 1) parts.push_back(PositionTable(plan, wide));
  parts.push_back(MemoryTable(plan, wide));
  parts.push_back(TrafficTable(plan, wide));
  return absl::StrJoin(parts, "\n");
}

}  // namespace tessera
