// TESSERA_PLANTED_ERROR: drop_all_reduce, double_bias_gradient, shift_positions or grow_workspace.
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/elementwise.h"
#include "worker/trainer/planted_error.h"

namespace tessera {
namespace {

bool IsPlanted(absl::string_view error) {
  const char* value = std::getenv("TESSERA_PLANTED_ERROR");
  return value != nullptr && value == error;
}

class Nothing : public CollectiveHandle {
 public:
  absl::Status Wait() override { return absl::OkStatus(); }
};

// Leaves out its third all_reduce, on every member alike.
class DropOneAllReduce : public Communicator {
 public:
  using Started = absl::StatusOr<std::unique_ptr<CollectiveHandle>>;
  explicit DropOneAllReduce(Communicator& base) : base_(base) {}
  const GroupSpec& group() const override { return base_.group(); }
  Started StartAllReduce(const Tensor& tensor, ReduceOp op, Stream& stream) override {
    if (++all_reduces_ == 3) return std::make_unique<Nothing>();
    return base_.StartAllReduce(tensor, op, stream);
  }
  Started StartReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op,
                             Stream& stream) override {
    return base_.StartReduceScatter(input, output, op, stream);
  }
  Started StartAllGather(const Tensor& input, const Tensor& output, Stream& stream) override {
    return base_.StartAllGather(input, output, stream);
  }
  Started StartBroadcast(const Tensor& tensor, int root, Stream& stream) override {
    return base_.StartBroadcast(tensor, root, stream);
  }
  Started StartAllToAll(const Tensor& input, const Tensor& output, Stream& stream) override {
    return base_.StartAllToAll(input, output, stream);
  }
  Started StartSend(const Tensor& tensor, int to, Stream& stream) override {
    return base_.StartSend(tensor, to, stream);
  }
  Started StartRecv(const Tensor& tensor, int from, Stream& stream) override {
    return base_.StartRecv(tensor, from, stream);
  }
  Started StartBarrier(Stream& stream) override { return base_.StartBarrier(stream); }
  void Abort(const absl::Status& reason) override { base_.Abort(reason); }
  bool pending(PendingOperation* operation) const override { return base_.pending(operation); }
  CommunicatorStats stats() const override { return base_.stats(); }

 private:
  Communicator& base_;
  int64_t all_reduces_ = 0;
};

}  // namespace

Communicator& PlantInGroup(Communicator& group) {
  if (group.size() == 1 || !IsPlanted("drop_all_reduce")) return group;
  // For as long as the process lives.
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<Communicator>>();
  std::lock_guard<std::mutex> lock(mutex);
  kept->push_back(std::make_unique<DropOneAllReduce>(group));
  return *kept->back();
}

void PlantInPositions(const plan::Coordinates& at, std::vector<int32_t>& positions) {
  if (at.cp_rank != 1 || !IsPlanted("shift_positions")) return;
  for (int32_t& position : positions) ++position;
}

absl::Status PlantInMemory(int64_t step, Device& device, std::vector<DeviceBuffer>& held) {
  if (!IsPlanted("grow_workspace")) return absl::OkStatus();
  auto buffer = device.Allocate(device.arena().capacity_bytes() / 4, MemoryCategory::kWorkspace,
                                absl::StrCat("planted in step ", step));
  if (!buffer.ok()) return buffer.status();
  held.push_back(*std::move(buffer));
  return absl::OkStatus();
}

absl::Status PlantInGradients(const plan::Coordinates&, int unit, ZeroStore& store,
                              Stream& stream) {
  if (!IsPlanted("double_bias_gradient") || store.units()[unit].name != "layer.0") {
    return absl::OkStatus();
  }
  const std::vector<ParameterSpec>& parameters = store.units()[unit].parameters;
  for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
    if (!absl::EndsWith(parameters[i].name, "c_proj.bias")) continue;
    return Scale(store.gradients().whole(unit)[i], 2, stream);
  }
  return absl::OkStatus();
}

}  // namespace tessera
