// Plain, slow arithmetic to test against: fp32 in rank order, one rounding.
#ifndef TESSERA_WORKER_COMM_REFERENCE_H_
#define TESSERA_WORKER_COMM_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/dtype.h"
#include "worker/comm/communicator.h"

namespace tessera {

using Bytes = std::vector<uint8_t>;

inline float BFloat16ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// The nearer neighbour, the even one of two at equal distance: by comparison, not by bit tricks.
inline uint16_t FloatToBFloat16(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, 4);
  const uint16_t toward_zero = wide >> 16;
  if (std::isnan(value)) return toward_zero | 0x40;
  if (std::isinf(value)) return toward_zero;
  const uint16_t away = toward_zero + 1;
  // Past the largest finite one lies what would be 2^128, which rounds to infinity.
  const double far = std::isinf(BFloat16ToFloat(away)) ? std::copysign(std::ldexp(1.0, 128), value)
                                                       : double{BFloat16ToFloat(away)};
  const double below = std::fabs(double{value} - double{BFloat16ToFloat(toward_zero)});
  const double above = std::fabs(far - double{value});
  if (below != above) return below < above ? toward_zero : away;
  return toward_zero % 2 == 0 ? toward_zero : away;
}

inline float Float16ToFloat(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

inline uint16_t FloatToFloat16(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}

// Element i of a buffer as fp32 (not int64), and back.
inline float GetFloat(DType dtype, const Bytes& data, int64_t i) {
  float value = 0;
  uint16_t half;
  if (dtype == DType::kFloat32) {
    std::memcpy(&value, &data[i * 4], 4);
    return value;
  }
  std::memcpy(&half, &data[i * 2], 2);
  return dtype == DType::kBFloat16 ? BFloat16ToFloat(half) : Float16ToFloat(half);
}
inline void SetFloat(DType dtype, Bytes& data, int64_t i, float value) {
  if (dtype == DType::kFloat32) {
    std::memcpy(&data[i * 4], &value, 4);
    return;
  }
  const uint16_t half = dtype == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value);
  std::memcpy(&data[i * 2], &half, 2);
}

inline Bytes ReferenceReduce(DType dtype, ReduceOp op, const std::vector<Bytes>& inputs) {
  Bytes result = inputs[0];
  const int64_t count = result.size() / DTypeSizeBytes(dtype);
  for (int64_t i = 0; i < count && inputs.size() > 1; ++i) {
    if (dtype == DType::kInt64) {
      uint64_t total = 0;
      for (size_t r = 0; r < inputs.size(); ++r) {
        uint64_t value;
        std::memcpy(&value, &inputs[r][i * 8], 8);
        const bool larger = static_cast<int64_t>(value) > static_cast<int64_t>(total);
        total = r == 0 ? value : op == ReduceOp::kSum ? total + value : larger ? value : total;
      }
      std::memcpy(&result[i * 8], &total, 8);
      continue;
    }
    float total = GetFloat(dtype, inputs[0], i);
    for (size_t r = 1; r < inputs.size(); ++r) {
      const float value = GetFloat(dtype, inputs[r], i);
      if (op == ReduceOp::kSum) {
        total += value;
      } else if (value > total || std::isnan(value)) {
        total = value;
      }
    }
    SetFloat(dtype, result, i, total);
  }
  return result;
}

// Values of both signs and many magnitudes, so that another order of summation shows; a function
// of (rank, seed) alone.
inline Bytes TestData(DType dtype, int64_t count, int rank, uint64_t seed = 0) {
  Bytes data(count * DTypeSizeBytes(dtype));
  uint64_t state = (seed * 1000 + rank + 1) * 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint32_t>(state >> 32);
    if (dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kUInt8) {
      std::memcpy(&data[i * DTypeSizeBytes(dtype)], &state, DTypeSizeBytes(dtype));
    } else {
      const float mantissa = static_cast<float>(bits >> 8) / (1 << 24) - 0.5f;
      SetFloat(dtype, data, i, std::ldexp(mantissa, static_cast<int>(bits % 21) - 10));
    }
  }
  return data;
}

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_REFERENCE_H_
