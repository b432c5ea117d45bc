#include "worker/pipeline_parallel/pipeline_runner.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

using plan::Action;
using plan::ActionKind;

// A communicator holds at most 64 unwaited sends to one member.
constexpr size_t kMaxSending = 32;

}  // namespace

int PeakMicroBatches(const plan::StageActions& actions, int chunk) {
  std::map<int, int> last;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].chunk == chunk) last[actions[i].micro_batch] = static_cast<int>(i);
  }
  std::map<int, int> touched;
  int peak = 0, now = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].chunk != chunk) continue;
    const int micro_batch = actions[i].micro_batch;
    if (touched.emplace(micro_batch, 0).second) peak = std::max(peak, ++now);
    if (last[micro_batch] == static_cast<int>(i)) --now;
  }
  return peak;
}

PipelineRunner::PipelineRunner(plan::StageActions actions, Communicator& pp_group)
    : actions_(std::move(actions)), pp_group_(pp_group), is_buffered_(actions_.size(), false) {
  for (const Action& action : actions_) ++num_actions_[{action.chunk, action.micro_batch}];
  // A message has arrived if something that follows from it has come back, as an activation's
  // gradient.
  std::set<MicroBatch> received_later;
  for (size_t i = actions_.size(); i-- > 0;) {
    const MicroBatch of{actions_[i].chunk, actions_[i].micro_batch};
    if (plan::IsReceive(actions_[i].kind)) received_later.insert(of);
    if (plan::IsSend(actions_[i].kind)) is_buffered_[i] = !received_later.contains(of);
  }
}

absl::Status PipelineRunner::Run(StageCompute& compute,
                                 const std::function<absl::Status()>& before_compute,
                                 std::vector<MeasuredAction>* measured, Stream& stream) {
  in_memory_.clear();
  used_slots_.clear();
  buffer_peer_.fill(-1);
  absl::Status status = RunActions(compute, before_compute, measured, stream);
  if (!status.ok()) {
    // Also for this rank: a handle that goes waits for its message to be received.
    pp_group_.Abort(absl::AbortedError(absl::StrCat(
        pp_group_.group().members[pp_group_.group_rank()].worker, " failed: ", status.message())));
  }
  sending_.clear();
  return status;
}

absl::Status PipelineRunner::RunActions(StageCompute& compute,
                                        const std::function<absl::Status()>& before_compute,
                                        std::vector<MeasuredAction>* measured, Stream& stream) {
  for (size_t i = 0; i < actions_.size(); ++i) {
    const Action& action = actions_[i];
    if (plan::IsCompute(action.kind)) TESSERA_RETURN_IF_ERROR(before_compute());
    TESSERA_RETURN_IF_ERROR(Admit({action.chunk, action.micro_batch}, compute));
    const auto begin = std::chrono::steady_clock::now();
    TESSERA_RETURN_IF_ERROR(Do(i, compute, stream));
    if (measured != nullptr) {
      TESSERA_RETURN_IF_ERROR(stream.Synchronize());
      measured->push_back({action, begin, std::chrono::steady_clock::now()});
    }
    TESSERA_RETURN_IF_ERROR(ReleaseIfDone(action, compute));
  }
  for (auto& [peer, sends] : sending_) {
    while (!sends.empty()) TESSERA_RETURN_IF_ERROR(FinishOldestSend(peer));
  }
  return absl::OkStatus();
}

absl::Status PipelineRunner::Do(size_t index, StageCompute& compute, Stream& stream) {
  const Action& action = actions_[index];
  const int chunk = action.chunk, micro_batch = action.micro_batch;
  switch (action.kind) {
    case ActionKind::kRecvActivation:
      return pp_group_.Recv(compute.Input(chunk, micro_batch), action.peer, stream);
    case ActionKind::kRecvGradient:
      return pp_group_.Recv(compute.Gradient(chunk, micro_batch), action.peer, stream);
    case ActionKind::kSendActivation:
    case ActionKind::kSendGradient:
      return Send(index, compute, stream);
    default:
      return compute.Compute(action, stream);
  }
}

absl::Status PipelineRunner::Send(size_t index, StageCompute& compute, Stream& stream) {
  const Action& action = actions_[index];
  const MicroBatch of{action.chunk, action.micro_batch};
  std::deque<Sending>& sending = sending_[action.peer];
  if (sending.size() == kMaxSending) TESSERA_RETURN_IF_ERROR(FinishOldestSend(action.peer));
  Tensor tensor = action.kind == ActionKind::kSendActivation
                      ? compute.Output(of.first, of.second)
                      : compute.Gradient(of.first, of.second);
  int buffer = -1;
  if (is_buffered_[index]) {
    buffer = next_buffer_;
    next_buffer_ = (next_buffer_ + 1) % StageCompute::kSendBuffers;
    while (buffer_peer_[buffer] >= 0) {
      TESSERA_RETURN_IF_ERROR(FinishOldestSend(buffer_peer_[buffer]));
    }
    const Tensor copy = compute.SendBuffer(buffer);
    TESSERA_RETURN_IF_ERROR(stream.device().Copy(tensor, copy, stream));
    tensor = copy;
    buffer_peer_[buffer] = action.peer;
  } else {
    in_memory_[of].sending_to = action.peer;
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveHandle> handle,
                           pp_group_.StartSend(tensor, action.peer, stream));
  sending.push_back({of, buffer, std::move(handle)});
  return absl::OkStatus();
}

absl::Status PipelineRunner::Admit(const MicroBatch& of, StageCompute& compute) {
  if (in_memory_.contains(of)) return absl::OkStatus();
  if (used_slots_[of.first] == compute.num_slots(of.first)) {
    return absl::InternalError(absl::StrCat("chunk ", of.first, " has memory for ",
                                            compute.num_slots(of.first),
                                            " micro-batches, and its schedule needs more"));
  }
  ++used_slots_[of.first];
  compute.Assign(of.first, of.second);
  in_memory_[of] = {num_actions_[of], -1};
  return absl::OkStatus();
}

absl::Status PipelineRunner::FinishOldestSend(int peer) {
  const Sending oldest = std::move(sending_[peer].front());
  sending_[peer].pop_front();
  TESSERA_RETURN_IF_ERROR(oldest.handle->Wait());
  if (oldest.buffer >= 0) {
    buffer_peer_[oldest.buffer] = -1;
  } else {
    in_memory_[oldest.of].sending_to = -1;
  }
  return absl::OkStatus();
}

absl::Status PipelineRunner::ReleaseIfDone(const Action& action, StageCompute& compute) {
  const MicroBatch of{action.chunk, action.micro_batch};
  Progress& progress = in_memory_[of];
  if (--progress.actions_left > 0) return absl::OkStatus();
  // Its message has been received, and those before it, so this does not wait.
  while (progress.sending_to >= 0) {
    TESSERA_RETURN_IF_ERROR(FinishOldestSend(progress.sending_to));
  }
  in_memory_.erase(of);
  --used_slots_[of.first];
  compute.Release(of.first, of.second);
  return absl::OkStatus();
}

}  // namespace tessera
