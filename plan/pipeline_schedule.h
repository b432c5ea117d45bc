// Pipeline schedules: what each stage does, in which order. The same lists are executed, simulated
// (plan/pipeline_simulation.h) and drawn.
//
// Legend: p stages (pp_ranks), m micro-batches, v chunks per stage. Global chunk g = chunk * p +
// pp_rank holds the g-th part of the layers: activations flow g -> g + 1, gradients g -> g - 1.
//
// What an executor must keep to:
//  - a stage runs its list in order; sends are buffered and do not wait, receives block;
//  - messages between an ordered pair of ranks arrive in the order sent and need no tags: the
//    receives from a peer are listed in the order of that peer's sends (with p = 2 interleaved,
//    activations and gradients share a channel). Keep what was received until its chunk computes;
//    none of these schedules receives for a later computation than the next one (tested).
// A channel that holds one message is enough, two with interleaved and p = 2 (tested).
#ifndef TESSERA_PLAN_PIPELINE_SCHEDULE_H_
#define TESSERA_PLAN_PIPELINE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::plan {

enum class PipelineSchedule : uint8_t {
  kNaive,            // no micro-batching: all forwards, then send; likewise backward
  kGpipe,            // all forwards, then all backwards (arXiv 1811.06965)
  k1f1b,             // one forward, one backward (PipeDream-flush, arXiv 2006.09503)
  kInterleaved1f1b,  // v chunks per stage (arXiv 2104.04473, section 2.2)
  kZeroBubbleH1,     // weight gradients fill the bubble (arXiv 2401.10241, ZB-H1)
};
inline constexpr PipelineSchedule kPipelineSchedules[] = {
    PipelineSchedule::kNaive, PipelineSchedule::kGpipe, PipelineSchedule::k1f1b,
    PipelineSchedule::kInterleaved1f1b, PipelineSchedule::kZeroBubbleH1};
// "naive", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble_h1".
const char* PipelineScheduleName(PipelineSchedule schedule);

struct ScheduleOptions {
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  int stages = 1;         // p
  int micro_batches = 1;  // m; any relation to p
  int chunks = 1;         // v; at least 2 with interleaved_1f1b, else 1
};

// m * p * v is at most this.
inline constexpr int64_t kMaxComputations = int64_t{1} << 24;

// INVALID_ARGUMENT naming field, value and rule.
absl::Status CheckSchedule(const ScheduleOptions& options);

enum class ActionKind : uint8_t {
  kForward,
  kBackward,        // input and weight gradients
  kBackwardInput,   // zero_bubble_h1 has these two apart
  kBackwardWeight,  //
  kSendActivation,
  kRecvActivation,
  kSendGradient,
  kRecvGradient,
};
// "forward", "backward", "backward_input", "backward_weight", "send_activation", ...
const char* ActionKindName(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;  // 0..v-1 of this rank: computes, or its output is sent, or its input received
  int micro_batch = 0;
  int peer = -1;  // pp_rank of the other end of a send or receive

  friend bool operator==(const Action&, const Action&) = default;
};
using StageActions = std::vector<Action>;

bool IsSend(ActionKind kind);
bool IsReceive(ActionKind kind);
inline bool IsCompute(ActionKind kind) { return kind <= ActionKind::kBackwardWeight; }

// One list per pp_rank. Every (chunk, micro-batch) is computed once in each direction, in ascending
// micro-batch order per chunk and direction. Errors as CheckSchedule.
//
// interleaved_1f1b goes in rounds of p micro-batches through its chunks. If p does not divide m,
// the last round is smaller: the lists are those of the next multiple of p without the actions of
// the micro-batches that do not exist. Leaving actions out cannot make a cycle among those that
// stay, so these lists are as free of deadlock as the full ones, and need no more memory.
absl::StatusOr<std::vector<StageActions>> MakeSchedule(const ScheduleOptions& options);

// Forward only, for evaluation: each output is sent as soon as it is there, whatever the schedule
// (also naive), so that a stage holds one micro-batch and what it received early.
absl::StatusOr<std::vector<StageActions>> MakeForwardSchedule(const ScheduleOptions& options);

// One line for people and errors: "forward micro_batch 3 chunk 1", "send_gradient ... to 2".
std::string ActionText(const Action& action);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_PIPELINE_SCHEDULE_H_
