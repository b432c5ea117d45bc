// Element types of tensors and of the data path.
#ifndef TESSERA_KERNELS_DTYPE_H_
#define TESSERA_KERNELS_DTYPE_H_

#include <cstdint>

namespace tessera {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt64, kInt32, kUInt8 };

// Bytes of one element.
constexpr int64_t DTypeSizeBytes(DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

// An element type of activations, weights and gradients.
constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

// "float32", "bfloat16", ... as PyTorch spells them.
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return "int64";
    case DType::kFloat32:
      return "float32";
    case DType::kInt32:
      return "int32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kUInt8:
      return "uint8";
  }
  return "unknown";
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_DTYPE_H_
