#include "plan/pipeline_timeline.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::plan {

SliceCategory CategoryOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return SliceCategory::kForward;
    case ActionKind::kBackward:
      return SliceCategory::kBackward;
    case ActionKind::kBackwardInput:
      return SliceCategory::kBackwardInput;
    case ActionKind::kBackwardWeight:
      return SliceCategory::kBackwardWeight;
    case ActionKind::kSendActivation:
    case ActionKind::kSendGradient:
      return SliceCategory::kSend;
    case ActionKind::kRecvActivation:
    case ActionKind::kRecvGradient:
      return SliceCategory::kReceive;
  }
  return SliceCategory::kOther;
}

Timeline TimelineOf(const std::vector<std::vector<TimedAction>>& stages,
                    std::vector<std::string> row_names, std::string title) {
  Timeline timeline;
  timeline.title = std::move(title);
  timeline.row_names = std::move(row_names);
  using Pair = std::pair<int, int>;  // pp_ranks: from, to
  std::map<Pair, std::vector<int>> sends;
  std::map<Pair, std::vector<int>> receives;
  for (size_t i = 0; i < stages.size(); ++i) {
    const int pp_rank = static_cast<int>(i);
    for (const TimedAction& timed : stages[i]) {
      const Action& action = timed.action;
      const int slice = static_cast<int>(timeline.slices.size());
      if (IsSend(action.kind)) sends[{pp_rank, action.peer}].push_back(slice);
      if (IsReceive(action.kind)) receives[{action.peer, pp_rank}].push_back(slice);
      timeline.slices.push_back(
          {.row = pp_rank,
           .name = absl::StrCat(ActionKindName(action.kind), " ", action.micro_batch),
           .stream = IsCompute(action.kind) ? "compute"
                     : IsSend(action.kind)  ? "send"
                                            : "receive",
           .category = CategoryOf(action.kind),
           .begin_s = timed.begin_s,
           .end_s = timed.end_s,
           .micro_batch = action.micro_batch,
           .chunk = action.chunk});
    }
  }
  for (const auto& [pair, received] : receives) {
    const std::vector<int>& sent = sends[pair];
    for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
      timeline.flows.push_back({.from_slice = sent[i], .to_slice = received[i]});
    }
  }
  return timeline;
}

Timeline TimelineOf(const PipelineSimulation& simulation, std::string title) {
  std::vector<std::vector<TimedAction>> stages;
  std::vector<std::string> row_names;
  for (const SimulatedStage& stage : simulation.stages) {
    row_names.push_back(absl::StrCat("pp_rank ", row_names.size()));
    std::vector<TimedAction>& actions = stages.emplace_back();
    for (const SimulatedSlice& slice : stage.slices) {
      actions.push_back({slice.action, slice.begin_s, slice.end_s});
    }
  }
  return TimelineOf(stages, std::move(row_names), std::move(title));
}

}  // namespace tessera::plan
