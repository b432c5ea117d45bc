#include "plan/pipeline_schedule.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/pipeline_messages.h"

namespace tessera::plan {
namespace {

void Add(StageActions& actions, ActionKind kind, int micro_batch, int chunk = 0) {
  actions.push_back({.kind = kind, .chunk = chunk, .micro_batch = micro_batch});
}

StageActions AllForwardsThenAllBackwards(int micro_batches) {
  StageActions actions;
  for (int i = 0; i < micro_batches; ++i) Add(actions, ActionKind::kForward, i);
  for (int i = 0; i < micro_batches; ++i) Add(actions, ActionKind::kBackward, i);
  return actions;
}

StageActions OneForwardOneBackward(int stages, int pp_rank, int micro_batches) {
  const int warm_up = std::min(micro_batches, stages - 1 - pp_rank);
  StageActions actions;
  for (int i = 0; i < warm_up; ++i) Add(actions, ActionKind::kForward, i);
  for (int i = 0; i < micro_batches; ++i) {
    if (i + warm_up < micro_batches) Add(actions, ActionKind::kForward, i + warm_up);
    Add(actions, ActionKind::kBackward, i);
  }
  return actions;
}

// As 1f1b, but weight gradients trail the input gradients by pp_rank micro-batches: stage i keeps
// p - i micro-batches for input gradients and i more for weight gradients, p on every stage.
StageActions ZeroBubbleH1(int stages, int pp_rank, int micro_batches) {
  StageActions actions;
  int weights = 0;
  for (const Action& action : OneForwardOneBackward(stages, pp_rank, micro_batches)) {
    if (action.kind == ActionKind::kForward) {
      actions.push_back(action);
      continue;
    }
    Add(actions, ActionKind::kBackwardInput, action.micro_batch);
    if (action.micro_batch >= pp_rank) Add(actions, ActionKind::kBackwardWeight, weights++);
  }
  while (weights < micro_batches) Add(actions, ActionKind::kBackwardWeight, weights++);
  return actions;
}

// The k-th of the computations of one direction on a stage: p micro-batches through one chunk, the
// same through the next chunk, ..., then the next p micro-batches.
struct Interleaved {
  int stages;
  int chunks;
  int MicroBatch(int k) const { return k / (stages * chunks) * stages + k % stages; }
  int ForwardChunk(int k) const { return k / stages % chunks; }
  int BackwardChunk(int k) const { return chunks - 1 - ForwardChunk(k); }
};

// arXiv 2104.04473, section 2.2.2; the warm-up as in Megatron-LM.
StageActions InterleavedOneForwardOneBackward(int stages, int pp_rank, int micro_batches,
                                              int chunks) {
  const Interleaved order{stages, chunks};
  const int rounds = (micro_batches + stages - 1) / stages;
  const int total = rounds * stages * chunks;
  const int warm_up = std::min(total, 2 * (stages - 1 - pp_rank) + (chunks - 1) * stages);
  StageActions actions;
  auto add = [&](ActionKind kind, int micro_batch, int chunk) {
    if (micro_batch < micro_batches) Add(actions, kind, micro_batch, chunk);
  };
  auto forward = [&](int k) {
    add(ActionKind::kForward, order.MicroBatch(k), order.ForwardChunk(k));
  };
  for (int k = 0; k < warm_up; ++k) forward(k);
  for (int k = 0; k < total; ++k) {
    if (k + warm_up < total) forward(k + warm_up);
    add(ActionKind::kBackward, order.MicroBatch(k), order.BackwardChunk(k));
  }
  return actions;
}

StageActions ComputationsOf(const ScheduleOptions& options, int pp_rank) {
  switch (options.schedule) {
    case PipelineSchedule::kNaive:
    case PipelineSchedule::kGpipe:
      return AllForwardsThenAllBackwards(options.micro_batches);
    case PipelineSchedule::k1f1b:
      return OneForwardOneBackward(options.stages, pp_rank, options.micro_batches);
    case PipelineSchedule::kInterleaved1f1b:
      return InterleavedOneForwardOneBackward(options.stages, pp_rank, options.micro_batches,
                                              options.chunks);
    case PipelineSchedule::kZeroBubbleH1:
      return ZeroBubbleH1(options.stages, pp_rank, options.micro_batches);
  }
  return {};
}

}  // namespace

const char* PipelineScheduleName(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::kNaive:
      return "naive";
    case PipelineSchedule::kGpipe:
      return "gpipe";
    case PipelineSchedule::k1f1b:
      return "1f1b";
    case PipelineSchedule::kInterleaved1f1b:
      return "interleaved_1f1b";
    case PipelineSchedule::kZeroBubbleH1:
      return "zero_bubble_h1";
  }
  return "unknown";
}

const char* ActionKindName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardInput:
      return "backward_input";
    case ActionKind::kBackwardWeight:
      return "backward_weight";
    case ActionKind::kSendActivation:
      return "send_activation";
    case ActionKind::kRecvActivation:
      return "recv_activation";
    case ActionKind::kSendGradient:
      return "send_gradient";
    case ActionKind::kRecvGradient:
      return "recv_gradient";
  }
  return "unknown";
}

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

bool IsReceive(ActionKind kind) {
  return kind == ActionKind::kRecvActivation || kind == ActionKind::kRecvGradient;
}

std::string ActionText(const Action& action) {
  std::string text = absl::StrCat(ActionKindName(action.kind), " micro_batch ", action.micro_batch,
                                  " chunk ", action.chunk);
  if (IsSend(action.kind)) absl::StrAppend(&text, " to ", action.peer);
  if (IsReceive(action.kind)) absl::StrAppend(&text, " from ", action.peer);
  return text;
}

absl::Status CheckSchedule(const ScheduleOptions& options) {
  int64_t computations = 1;
  const std::pair<const char*, int> fields[] = {{"stages", options.stages},
                                                {"micro_batches", options.micro_batches},
                                                {"chunks", options.chunks}};
  for (const auto& [name, value] : fields) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, ": must be at least 1"));
    }
    computations *= value;
    if (computations > kMaxComputations) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": ", value, ": stages * micro_batches * chunks is above ", kMaxComputations));
    }
  }
  const bool interleaved = options.schedule == PipelineSchedule::kInterleaved1f1b;
  if (interleaved ? options.chunks < 2 : options.chunks > 1) {
    return absl::InvalidArgumentError(absl::StrCat("chunks: ", options.chunks, ": must be ",
                                                   interleaved ? "at least 2" : "1", " with ",
                                                   PipelineScheduleName(options.schedule)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StageActions>> MakeSchedule(const ScheduleOptions& options) {
  if (absl::Status status = CheckSchedule(options); !status.ok()) return status;
  std::vector<StageActions> computations;
  for (int pp_rank = 0; pp_rank < options.stages; ++pp_rank) {
    computations.push_back(ComputationsOf(options, pp_rank));
  }
  const bool naive = options.schedule == PipelineSchedule::kNaive;
  return AddMessages(computations, options.chunks, naive ? SendTime::kAfterRun : SendTime::kAtOnce);
}

absl::StatusOr<std::vector<StageActions>> MakeForwardSchedule(const ScheduleOptions& options) {
  if (absl::Status status = CheckSchedule(options); !status.ok()) return status;
  StageActions forwards;
  for (int first = 0; first < options.micro_batches; first += options.stages) {
    const int end = std::min(options.micro_batches, first + options.stages);
    for (int chunk = 0; chunk < options.chunks; ++chunk) {
      for (int i = first; i < end; ++i) Add(forwards, ActionKind::kForward, i, chunk);
    }
  }
  return AddMessages(std::vector<StageActions>(options.stages, forwards), options.chunks,
                     SendTime::kAtOnce);
}

}  // namespace tessera::plan
