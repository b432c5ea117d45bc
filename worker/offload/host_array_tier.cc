#include "worker/offload/host_array_tier.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/offload/host_view.h"

namespace tessera {

absl::Status HostArrayTier::AddUnit(int unit, const std::string& name, DType dtype,
                                    int64_t elements) {
  Unit added;
  TESSERA_ASSIGN_OR_RETURN(added.buffer, host_.Allocate(elements * DTypeSizeBytes(dtype), category_,
                                                        absl::StrCat("unit ", name)));
  added.tensor = added.buffer.View(dtype, {elements});
  units_[unit] = std::move(added);
  return absl::OkStatus();
}

absl::Status HostArrayTier::Store(int unit, const Tensor& from, Stream& stream) {
  const Tensor to = units_.at(unit).tensor.Slice(0, from.num_elements());
  meter_.of(plan::Tier::kHost).written_bytes += from.size_bytes();
  TESSERA_RETURN_IF_ERROR(
      stream.device().CopyOut(from, HostAddress(to), from.size_bytes(), stream));
  return stream.Synchronize();
}

absl::Status HostArrayTier::StartFetch(int unit, const Tensor& to, Stream& stream) {
  const Tensor from = units_.at(unit).tensor.Slice(0, to.num_elements());
  meter_.of(plan::Tier::kHost).read_bytes += to.size_bytes();
  return stream.device().CopyIn(HostAddress(from), to.size_bytes(), to, stream);
}

}  // namespace tessera
