#include "worker/trainer/loss_total.h"

#include <array>
#include <cmath>
#include <limits>

#include "kernels/status_macros.h"

namespace tessera {
namespace {
constexpr double kUnitsPerNat = 1 << 24;
constexpr int64_t kMaxValues = 3;
}  // namespace

void LossTotal::AddSequence(absl::Span<const float> losses, int64_t valid_targets) {
  double sum = 0;
  for (const float loss : losses) sum += loss;
  valid_targets_ += valid_targets;
  // A sequence beyond 2^38 nats would not fit either: as good as not finite.
  if (std::isfinite(sum) && std::abs(sum) < 0x1p38) {
    fixed_point_ += std::llround(sum * kUnitsPerNat);
  } else {
    ++not_finite_;
  }
}

double LossTotal::Mean() const {
  if (not_finite_ > 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(fixed_point_) / kUnitsPerNat / static_cast<double>(valid_targets_);
}

absl::StatusOr<std::unique_ptr<LossReducer>> LossReducer::Create(std::vector<Communicator*> groups,
                                                                 Device& device) {
  std::unique_ptr<LossReducer> reducer(new LossReducer(std::move(groups), device));
  TESSERA_ASSIGN_OR_RETURN(
      reducer->buffer_,
      device.Allocate(kMaxValues * sizeof(int64_t), MemoryCategory::kCommunication, "loss totals"));
  return reducer;
}

absl::StatusOr<LossTotal> LossReducer::Reduce(const LossTotal& local, Stream& stream) {
  std::array<int64_t, kMaxValues> values = {local.fixed_point_, local.valid_targets_,
                                            local.not_finite_};
  TESSERA_RETURN_IF_ERROR(ReduceValues(absl::MakeSpan(values), stream));
  LossTotal total;
  total.fixed_point_ = values[0];
  total.valid_targets_ = values[1];
  total.not_finite_ = values[2];
  return total;
}

absl::StatusOr<int64_t> LossReducer::Reduce(int64_t local, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(ReduceValues(absl::MakeSpan(&local, 1), stream));
  return local;
}

absl::Status LossReducer::ReduceValues(absl::Span<int64_t> values, Stream& stream) {
  const Tensor tensor = buffer_.View(DType::kInt64, {static_cast<int64_t>(values.size())});
  TESSERA_RETURN_IF_ERROR(device_.CopyIn(values.data(), tensor.size_bytes(), tensor, stream));
  for (Communicator* group : groups_) {
    TESSERA_RETURN_IF_ERROR(group->AllReduce(tensor, ReduceOp::kSum, stream));
  }
  TESSERA_RETURN_IF_ERROR(device_.CopyOut(tensor, values.data(), tensor.size_bytes(), stream));
  return stream.Synchronize();
}

}  // namespace tessera
