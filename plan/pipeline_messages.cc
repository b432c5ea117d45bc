#include "plan/pipeline_messages.h"

#include <cstddef>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/base/internal/raw_logging.h"

namespace tessera::plan {
namespace {

struct Pipeline {
  int stages;
  int chunks;

  int Next(int pp_rank) const { return (pp_rank + 1) % stages; }
  int Previous(int pp_rank) const { return (pp_rank + stages - 1) % stages; }
  bool IsFirst(int pp_rank, int chunk) const { return pp_rank == 0 && chunk == 0; }
  bool IsLast(int pp_rank, int chunk) const { return pp_rank == stages - 1 && chunk == chunks - 1; }
};

// The send that follows a computation, or none: a stage alone keeps everything.
std::optional<Action> SendOf(const Pipeline& pipeline, int pp_rank, const Action& computed) {
  if (pipeline.stages == 1 || computed.kind == ActionKind::kBackwardWeight) return std::nullopt;
  Action send = computed;
  if (computed.kind == ActionKind::kForward) {
    if (pipeline.IsLast(pp_rank, computed.chunk)) return std::nullopt;
    send.kind = ActionKind::kSendActivation;
    send.peer = pipeline.Next(pp_rank);
  } else {
    if (pipeline.IsFirst(pp_rank, computed.chunk)) return std::nullopt;
    send.kind = ActionKind::kSendGradient;
    send.peer = pipeline.Previous(pp_rank);
  }
  return send;
}

// The receive without which a computation cannot start, or none.
std::optional<Action> ReceiveOf(const Pipeline& pipeline, int pp_rank, const Action& compute) {
  if (pipeline.stages == 1 || compute.kind == ActionKind::kBackwardWeight) return std::nullopt;
  Action receive = compute;
  if (compute.kind == ActionKind::kForward) {
    if (pipeline.IsFirst(pp_rank, compute.chunk)) return std::nullopt;
    receive.kind = ActionKind::kRecvActivation;
    receive.peer = pipeline.Previous(pp_rank);
  } else {
    if (pipeline.IsLast(pp_rank, compute.chunk)) return std::nullopt;
    receive.kind = ActionKind::kRecvGradient;
    receive.peer = pipeline.Next(pp_rank);
  }
  return receive;
}

// What send is at its other end: the chunk is the one whose input it becomes.
Action OtherEnd(int pp_rank, const Action& send) {
  Action receive = send;
  receive.peer = pp_rank;
  if (send.kind == ActionKind::kSendActivation) {
    receive.kind = ActionKind::kRecvActivation;
    if (send.peer == 0) ++receive.chunk;  // g + 1 wraps round to the first rank's next chunk
  } else {
    receive.kind = ActionKind::kRecvGradient;
    if (pp_rank == 0) --receive.chunk;
  }
  return receive;
}

StageActions WithSends(const Pipeline& pipeline, int pp_rank, const StageActions& compute,
                       SendTime send_time) {
  StageActions actions;
  StageActions held;
  for (size_t i = 0; i < compute.size(); ++i) {
    actions.push_back(compute[i]);
    if (auto send = SendOf(pipeline, pp_rank, compute[i])) held.push_back(*send);
    const bool run_ends = i + 1 == compute.size() || compute[i + 1].kind != compute[i].kind;
    if (send_time == SendTime::kAfterRun && !run_ends) continue;
    actions.insert(actions.end(), held.begin(), held.end());
    held.clear();
  }
  return actions;
}

}  // namespace

std::vector<StageActions> AddMessages(const std::vector<StageActions>& compute, int chunks,
                                      SendTime send_time) {
  const Pipeline pipeline{static_cast<int>(compute.size()), chunks};
  const int stages = pipeline.stages;
  std::vector<StageActions> sending(stages);
  std::vector<StageActions> channels(static_cast<size_t>(stages) * stages);  // receives, [from][to]
  for (int pp_rank = 0; pp_rank < stages; ++pp_rank) {
    sending[pp_rank] = WithSends(pipeline, pp_rank, compute[pp_rank], send_time);
    for (const Action& action : sending[pp_rank]) {
      if (!IsSend(action.kind)) continue;
      channels[pp_rank * stages + action.peer].push_back(OtherEnd(pp_rank, action));
    }
  }

  std::vector<StageActions> result(stages);
  for (int pp_rank = 0; pp_rank < stages; ++pp_rank) {
    std::vector<size_t> received(stages, 0);  // of each peer's channel
    using Message = std::tuple<ActionKind, int, int>;
    std::set<Message> early;  // received, its computation still to come
    for (const Action& action : sending[pp_rank]) {
      std::optional<Action> needed;
      if (IsCompute(action.kind)) needed = ReceiveOf(pipeline, pp_rank, action);
      if (needed && !early.erase({needed->kind, needed->chunk, needed->micro_batch})) {
        const StageActions& channel = channels[needed->peer * stages + pp_rank];
        while (true) {
          ABSL_RAW_CHECK(received[needed->peer] < channel.size(), "received but never sent");
          const Action& receive = channel[received[needed->peer]++];
          result[pp_rank].push_back(receive);
          if (receive == *needed) break;
          early.insert({receive.kind, receive.chunk, receive.micro_batch});
        }
      }
      result[pp_rank].push_back(action);
    }
  }
  return result;
}

}  // namespace tessera::plan
