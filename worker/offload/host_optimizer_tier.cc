#include "worker/offload/host_optimizer_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "plan/unit_sizes.h"
#include "worker/offload/host_view.h"

namespace tessera {

absl::Status HostOptimizerTier::AddUnit(int unit, const std::string& name, int64_t /*first*/,
                                        int64_t elements) {
  const int64_t stride = plan::StateStrideElements(elements);
  Unit added;
  TESSERA_ASSIGN_OR_RETURN(
      added.buffer, host_.Allocate(stride * kNumStateArrays * DTypeSizeBytes(DType::kFloat32),
                                   MemoryCategory::kOptimizer, absl::StrCat("unit ", name)));
  const Tensor all = added.buffer.View(DType::kFloat32, {stride * kNumStateArrays});
  std::memset(HostAddress(all), 0, all.size_bytes());
  added.piece = {0, elements, all.Slice(0, elements), all.Slice(stride, elements),
                 all.Slice(2 * stride, elements)};
  units_[unit] = std::move(added);
  return absl::OkStatus();
}

absl::Status HostOptimizerTier::Visit(int unit, Access access,
                                      absl::FunctionRef<absl::Status(const StatePiece&)> visit) {
  const StatePiece& piece = units_.at(unit).piece;
  const int64_t bytes = piece.master.size_bytes() * kNumStateArrays;
  meter_.of(plan::Tier::kHost).read_bytes += bytes;
  if (access == Access::kUpdate) meter_.of(plan::Tier::kHost).written_bytes += bytes;
  return visit(piece);
}

absl::Status HostOptimizerTier::Read(StateArray array, int unit, int64_t begin,
                                     absl::Span<float> values) {
  const Tensor& tensor = units_.at(unit).piece.of(array);
  std::copy_n(static_cast<const float*>(HostAddress(tensor)) + begin, values.size(), values.data());
  return absl::OkStatus();
}

absl::Status HostOptimizerTier::WriteMaster(int unit, int64_t begin,
                                            absl::Span<const float> values) {
  const Tensor& tensor = units_.at(unit).piece.master;
  std::copy_n(values.data(), values.size(), static_cast<float*>(HostAddress(tensor)) + begin);
  return absl::OkStatus();
}

}  // namespace tessera
