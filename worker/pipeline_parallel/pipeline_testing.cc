#include "worker/pipeline_parallel/pipeline_testing.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_device.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {
namespace {

using plan::Action;
using plan::ActionKind;

constexpr int64_t kElements = 4;
constexpr int64_t kTensorBytes = kElements * 8;

}  // namespace

SyntheticStage::SyntheticStage(const Options& options, Device& device, Stream& stream)
    : options_(options), device_(device), stream_(stream) {
  int64_t slots = 0;
  for (const int chunk_slots : options_.slots) slots += chunk_slots;
  memory_ = *device.Allocate((3 * slots + kSendBuffers) * kTensorBytes,
                             MemoryCategory::kActivations, "test");
  int64_t offset = 0;
  auto next = [&] {
    const Tensor tensor = memory_.View(DType::kInt64, {1, kElements}, offset);
    offset += kTensorBytes;
    return tensor;
  };
  for (const int chunk_slots : options_.slots) {
    std::vector<Slot>& chunk = slots_.emplace_back();
    for (int i = 0; i < chunk_slots; ++i) chunk.push_back({-1, next(), next(), next()});
  }
  for (int i = 0; i < kSendBuffers; ++i) send_buffers_.push_back(next());
}

void SyntheticStage::Assign(int chunk, int micro_batch) {
  for (Slot& slot : slots_[chunk]) {
    if (slot.micro_batch == micro_batch) return Fault("a micro-batch is given memory twice");
  }
  for (Slot& slot : slots_[chunk]) {
    if (slot.micro_batch >= 0) continue;
    slot.micro_batch = micro_batch;
    return;
  }
  Fault("more micro-batches than slots");
}

void SyntheticStage::Release(int chunk, int micro_batch) {
  Slot& slot = const_cast<Slot&>(At(chunk, micro_batch));
  for (const Tensor& tensor : {slot.input, slot.output, slot.gradient}) {
    Write(tensor, {-1, -1, -1, -1});
  }
  slot.micro_batch = -1;
}

const SyntheticStage::Slot& SyntheticStage::At(int chunk, int micro_batch) const {
  const std::vector<Slot>& slots = slots_[chunk];
  return *std::find_if(slots.begin(), slots.end(),
                       [&](const Slot& slot) { return slot.micro_batch == micro_batch; });
}

Tensor SyntheticStage::Input(int chunk, int micro_batch) const {
  return At(chunk, micro_batch).input;
}
Tensor SyntheticStage::Output(int chunk, int micro_batch) const {
  return At(chunk, micro_batch).output;
}
Tensor SyntheticStage::Gradient(int chunk, int micro_batch) const {
  return At(chunk, micro_batch).gradient;
}

SyntheticStage::Contents SyntheticStage::ContentsOf(bool is_activation, int global_chunk,
                                                    int micro_batch) const {
  return {is_activation ? 1 : 2, global_chunk, micro_batch, options_.run};
}

void SyntheticStage::Write(const Tensor& tensor, const Contents& contents) {
  const absl::Status status = device_.CopyIn(contents.data(), kTensorBytes, tensor, stream_);
  if (!status.ok()) Fault(status.ToString());
}

absl::Status SyntheticStage::Expect(const Tensor& tensor, const Contents& contents,
                                    const Action& action) {
  Contents found = {};
  const absl::Status status = device_.CopyOut(tensor, found.data(), kTensorBytes, stream_);
  if (!status.ok() || found == contents) return status;
  return absl::InternalError(absl::StrCat("pp_rank ", options_.pp_rank, ", ", ActionText(action),
                                          ": has (", absl::StrJoin(found, ", "), "), expects (",
                                          absl::StrJoin(contents, ", "), ")"));
}

absl::Status SyntheticStage::Compute(const Action& action, Stream&) {
  if (options_.fails_at == action) return options_.failure;
  ++computations_;
  const int chunk = action.chunk, micro_batch = action.micro_batch;
  if (!done_[action.kind].emplace(chunk, micro_batch).second) Fault("computed twice");
  const int global = GlobalChunk(chunk);
  const Slot& slot = At(chunk, micro_batch);
  const bool is_forward = action.kind == ActionKind::kForward;
  const bool is_weight = action.kind == ActionKind::kBackwardWeight;
  absl::Status status;
  if (global > 0) {
    status = Expect(slot.input, ContentsOf(true, global - 1, micro_batch), action);
  }
  if (!is_forward && status.ok()) {
    status = Expect(slot.output, ContentsOf(true, global, micro_batch), action);
  }
  if (is_weight) {
    status.Update(Expect(slot.gradient, ContentsOf(false, global, micro_batch), action));
  } else if (!is_forward && global + 1 < NumGlobalChunks()) {
    status.Update(Expect(slot.gradient, ContentsOf(false, global + 1, micro_batch), action));
  }
  if (!status.ok()) return status;
  const plan::ChunkCosts& costs = options_.costs;
  const double cost_s = is_forward  ? costs.forward_s
                        : is_weight ? costs.backward_weight_s
                        : action.kind == ActionKind::kBackwardInput
                            ? costs.backward_input_s
                            : costs.backward_input_s + costs.backward_weight_s;
  if (cost_s > 0) {
    std::this_thread::sleep_until(std::chrono::steady_clock::now() +
                                  std::chrono::duration<double>(cost_s));
  }
  if (is_forward) Write(slot.output, ContentsOf(true, global, micro_batch));
  if (!is_forward && !is_weight) Write(slot.gradient, ContentsOf(false, global, micro_batch));
  return absl::OkStatus();
}

void SyntheticStage::Fault(std::string text) {
  if (fault_.empty()) fault_ = std::move(text);
}

absl::Status SyntheticStage::CheckEnd() const {
  const bool apart = options_.schedule.schedule == plan::PipelineSchedule::kZeroBubbleH1;
  const size_t kinds = !options_.is_training ? 1 : apart ? 3 : 2;
  const size_t each =
      static_cast<size_t>(options_.schedule.chunks) * options_.schedule.micro_batches;
  if (!fault_.empty()) return absl::InternalError(fault_);
  if (done_.size() != kinds) return absl::InternalError("a kind of computation is missing");
  for (const auto& [kind, parts] : done_) {
    if (parts.size() == each) continue;
    return absl::InternalError(
        absl::StrCat(ActionKindName(kind), " ", parts.size(), " times, not ", each));
  }
  for (const std::vector<Slot>& chunk : slots_) {
    for (const Slot& slot : chunk) {
      if (slot.micro_batch >= 0) return absl::InternalError("memory is not released");
    }
  }
  return absl::OkStatus();
}

std::vector<absl::Status> RunPipelineRanks(int p, absl::Duration timeout,
                                           const std::function<absl::Status(PipelineRank&)>& body) {
  InProcessHub hub;
  std::vector<std::unique_ptr<CpuDevice>> devices;
  std::vector<std::unique_ptr<Transport>> transports;
  GroupSpec spec;
  spec.name = "pp";
  spec.job_uid = "pipeline";
  spec.timeout = timeout;
  for (int i = 0; i < p; ++i) {
    devices.push_back(*CpuDevice::Create(absl::StrCat("cpu:", i), 1 << 20));
    transports.push_back(hub.CreateTransport(*devices[i]));
    spec.members.push_back({i, absl::StrCat("workers/w", i), transports[i]->address()});
  }
  std::vector<absl::Status> statuses(p);
  auto run = [&](int i) -> absl::Status {
    GroupSpec own = spec;
    own.group_rank = i;
    auto group = transports[i]->Join(own);
    if (!group.ok()) return group.status();
    auto stream = devices[i]->CreateStream();
    if (!stream.ok()) return stream.status();
    PipelineRank rank{i, **group, *devices[i], **stream};
    absl::Status status = body(rank);
    if (!status.ok()) (*group)->Abort(status);
    return status;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < p; ++i) {
    threads.emplace_back([&, i] { statuses[i] = run(i); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace tessera
