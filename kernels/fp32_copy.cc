#include "kernels/fp32_copy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cast.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

constexpr int64_t kPieceElements = 1 << 20;

absl::Status CheckCount(size_t values, const Tensor& tensor) {
  if (static_cast<int64_t>(values) == tensor.num_elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(values, " values: must be ", tensor.num_elements()));
}

// Calls copy(fp32 piece, tensor's piece, first element) for consecutive pieces.
template <typename Copy>
absl::Status ByPieces(const Tensor& tensor, Stream& stream, const Copy& copy) {
  Device& device = stream.device();
  const int64_t count = tensor.num_elements();
  const Tensor flat = tensor.Reshape({count});
  TESSERA_ASSIGN_OR_RETURN(
      DeviceBuffer staging,
      device.Allocate(std::min(count, kPieceElements) * DTypeSizeBytes(DType::kFloat32),
                      MemoryCategory::kWorkspace, "conversion"));
  for (int64_t begin = 0; begin < count; begin += kPieceElements) {
    const int64_t size = std::min(kPieceElements, count - begin);
    TESSERA_RETURN_IF_ERROR(
        copy(staging.View(DType::kFloat32, {size}), flat.Slice(begin, size), begin));
    TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyInFp32(absl::Span<const float> values, const Tensor& to, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckCount(values.size(), to));
  Device& device = stream.device();
  if (to.dtype() == DType::kFloat32) {
    TESSERA_RETURN_IF_ERROR(device.CopyIn(values.data(), to.size_bytes(), to, stream));
    return stream.Synchronize();
  }
  return ByPieces(to, stream, [&](const Tensor& fp32, const Tensor& piece, int64_t begin) {
    absl::Status status = device.CopyIn(values.data() + begin, fp32.size_bytes(), fp32, stream);
    return status.ok() ? Cast(fp32, piece, stream) : status;
  });
}

absl::Status CopyOutFp32(const Tensor& from, absl::Span<float> values, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(CheckCount(values.size(), from));
  Device& device = stream.device();
  if (from.dtype() == DType::kFloat32) {
    TESSERA_RETURN_IF_ERROR(device.CopyOut(from, values.data(), from.size_bytes(), stream));
    return stream.Synchronize();
  }
  return ByPieces(from, stream, [&](const Tensor& fp32, const Tensor& piece, int64_t begin) {
    absl::Status status = Cast(piece, fp32, stream);
    if (!status.ok()) return status;
    return device.CopyOut(fp32, values.data() + begin, fp32.size_bytes(), stream);
  });
}

}  // namespace tessera
