#include "plan/pipeline_simulation.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/pipeline_stage_state.h"

namespace tessera::plan {
namespace {

// Messages of one ordered pair of ranks.
struct Channel {
  struct Message {
    Action send;
    int slice;
    double arrival_s;
  };
  std::vector<Message> sent;
  std::vector<double> received_s;
};

double CostOf(ActionKind kind, const ChunkCosts& costs) {
  switch (kind) {
    case ActionKind::kForward:
      return costs.forward_s;
    case ActionKind::kBackward:
      return costs.backward_input_s + costs.backward_weight_s;
    case ActionKind::kBackwardInput:
      return costs.backward_input_s;
    case ActionKind::kBackwardWeight:
      return costs.backward_weight_s;
    default:
      return 0;
  }
}

// Whether a receive asks for what was sent: the chunk follows from the wrap at the chain's ends.
bool Matches(const Action& receive, const Action& send, int from, int to) {
  const bool activation = receive.kind == ActionKind::kRecvActivation;
  if (send.kind != (activation ? ActionKind::kSendActivation : ActionKind::kSendGradient)) {
    return false;
  }
  int chunk = send.chunk;
  if (activation && to == 0) ++chunk;
  if (!activation && from == 0) --chunk;
  return receive.chunk == chunk && receive.micro_batch == send.micro_batch;
}

absl::Status Misfit(int pp_rank, size_t index, const Action& action, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("pipeline schedule: pp_rank ", pp_rank,
                                                    " action ", index, " (", ActionText(action),
                                                    "): ", why));
}

class Simulator {
 public:
  Simulator(absl::Span<const StageActions> lists, const ChunkCosts& costs, int capacity)
      : lists_(lists), costs_(costs), capacity_(static_cast<size_t>(capacity)) {
    int chunks = 1;
    bool forward_only = true;
    for (const StageActions& list : lists) {
      for (const Action& action : list) {
        chunks = std::max(chunks, action.chunk + 1);
        if (IsCompute(action.kind) && action.kind != ActionKind::kForward) forward_only = false;
      }
    }
    const int stages = static_cast<int>(lists.size());
    for (int i = 0; i < stages; ++i) states_.emplace_back(i, stages, chunks, forward_only);
    result_.stages.resize(lists.size());
  }

  absl::StatusOr<PipelineSimulation> Run() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t i = 0; i < lists_.size(); ++i) {
        while (Next(i) < lists_[i].size()) {
          auto ran = Step(static_cast<int>(i));
          if (!ran.ok()) return ran.status();
          if (!*ran) break;
          progress = true;
        }
      }
    }
    if (absl::Status status = CheckDone(); !status.ok()) return status;
    Sum();
    return std::move(result_);
  }

 private:
  size_t Next(size_t pp_rank) const { return result_.stages[pp_rank].slices.size(); }

  // False if the stage must wait.
  absl::StatusOr<bool> Step(int pp_rank) {
    SimulatedStage& stage = result_.stages[pp_rank];
    const Action& action = lists_[pp_rank][stage.slices.size()];
    SimulatedSlice slice{.action = action};
    slice.begin_s = stage.slices.empty() ? 0 : stage.slices.back().end_s;
    slice.end_s = slice.begin_s + CostOf(action.kind, costs_);
    if (!IsCompute(action.kind) &&
        (action.peer < 0 || action.peer >= static_cast<int>(lists_.size()))) {
      return Misfit(pp_rank, stage.slices.size(), action, "no such peer");
    }
    if (IsSend(action.kind)) {
      Channel& channel = channels_[{pp_rank, action.peer}];
      if (channel.sent.size() >= capacity_) {
        const size_t leaves = channel.sent.size() - capacity_;
        if (leaves >= channel.received_s.size()) return false;
        slice.end_s = std::max(slice.end_s, channel.received_s[leaves]);
      }
      channel.sent.push_back(
          {action, static_cast<int>(stage.slices.size()), slice.end_s + costs_.send_latency_s});
    }
    if (IsReceive(action.kind)) {
      Channel& channel = channels_[{action.peer, pp_rank}];
      if (channel.received_s.size() == channel.sent.size()) return false;
      const Channel::Message& message = channel.sent[channel.received_s.size()];
      if (!Matches(action, message.send, action.peer, pp_rank)) {
        return Misfit(pp_rank, stage.slices.size(), action,
                      absl::StrCat("the peer sent ", ActionText(message.send)));
      }
      slice.end_s = std::max(slice.end_s, message.arrival_s);
      slice.sent_by = message.slice;
      channel.received_s.push_back(slice.end_s);
    }
    if (std::string why = states_[pp_rank].Run(action, stage); !why.empty()) {
      return Misfit(pp_rank, stage.slices.size(), action, why);
    }
    stage.slices.push_back(slice);
    return true;
  }

  absl::Status CheckDone() const {
    bool all_done = true;
    std::string where;
    for (size_t i = 0; i < lists_.size(); ++i) {
      absl::StrAppend(&where, i == 0 ? "" : "; ", "pp_rank ", i);
      if (Next(i) == lists_[i].size()) {
        absl::StrAppend(&where, " is done");
        continue;
      }
      all_done = false;
      absl::StrAppend(&where, " waits at action ", Next(i), " (", ActionText(lists_[i][Next(i)]),
                      ")");
    }
    if (!all_done) return absl::FailedPreconditionError(absl::StrCat("pipeline deadlock: ", where));
    for (const auto& [ends, channel] : channels_) {
      if (channel.sent.size() == channel.received_s.size()) continue;
      const Channel::Message& message = channel.sent[channel.received_s.size()];
      return Misfit(ends.first, message.slice, message.send, "never received");
    }
    return absl::OkStatus();
  }

  void Sum() {
    double busy_s = 0;
    for (SimulatedStage& stage : result_.stages) {
      for (const SimulatedSlice& slice : stage.slices) {
        if (IsCompute(slice.action.kind)) stage.busy_s += slice.end_s - slice.begin_s;
        result_.total_s = std::max(result_.total_s, slice.end_s);
      }
      busy_s += stage.busy_s;
    }
    if (result_.total_s <= 0) return;
    for (SimulatedStage& stage : result_.stages) {
      stage.idle_share = 1 - stage.busy_s / result_.total_s;
    }
    result_.idle_share = 1 - busy_s / (result_.total_s * static_cast<double>(lists_.size()));
  }

  const absl::Span<const StageActions> lists_;
  const ChunkCosts costs_;
  const size_t capacity_;
  std::vector<StageState> states_;
  std::map<std::pair<int, int>, Channel> channels_;  // [from, to]
  PipelineSimulation result_;
};

}  // namespace

absl::StatusOr<PipelineSimulation> SimulatePipeline(absl::Span<const StageActions> stages,
                                                    const ChunkCosts& costs, int channel_capacity) {
  if (channel_capacity < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("channel_capacity: ", channel_capacity, ": must be at least 1"));
  }
  return Simulator(stages, costs, channel_capacity).Run();
}

}  // namespace tessera::plan
