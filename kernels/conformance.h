// What the operation families' conformance suites share: devices to run on, tensors from and to the
// host, random values. A backend joins every suite by a row in Backends().
#ifndef TESSERA_KERNELS_CONFORMANCE_H_
#define TESSERA_KERNELS_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/device.h"
#include "kernels/float16.h"

namespace tessera {

// Half the distance from 1 to the next fp32: the largest relative error of one rounding.
inline constexpr double kUnitRoundoff = 0x1p-24;

inline constexpr DType kFloatTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// Element types of operands and of what is added up from them.
struct Accumulation {
  DType operands, sums;
};
inline constexpr Accumulation kAccumulations[] = {{DType::kFloat32, DType::kFloat32},
                                                  {DType::kBFloat16, DType::kBFloat16},
                                                  {DType::kBFloat16, DType::kFloat32},
                                                  {DType::kFloat16, DType::kFloat16},
                                                  {DType::kFloat16, DType::kFloat32}};

// Largest relative error of rounding to dtype: half the distance from 1 to the next element.
inline double UnitRoundoff(DType dtype) {
  return dtype == DType::kFloat32 ? 0x1p-24 : dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// Largest error of storing `value`, which fp32 arithmetic computed, as an element of dtype: one
// rounding; fp32 arithmetic's own is counted elsewhere. fp16's subnormals are 2^-24 apart.
inline double StoreError(DType dtype, double value) {
  if (dtype == DType::kFloat32) return 0;
  return UnitRoundoff(dtype) * std::abs(value) + (dtype == DType::kFloat16 ? 0x1p-25 : 0);
}

inline float RoundTo(DType dtype, float value) {
  BFloat16 bf16;
  Float16 fp16;
  FromFloat(value, &bf16);
  FromFloat(value, &fp16);
  return dtype == DType::kFloat32    ? value
         : dtype == DType::kBFloat16 ? ToFloat(bf16)
                                     : ToFloat(fp16);
}

struct Backend {
  std::string name;
  std::function<std::unique_ptr<Device>()> create;
};

inline Backend CpuBackend(int num_threads) {
  return {"Cpu" + std::to_string(num_threads),
          [=] { return *CpuDevice::Create("cpu:0", 64 << 20, num_threads); }};
}

// libgomp is not instrumented: under tsan its barriers look like races, so threads stay at one
// there.
inline std::vector<Backend> Backends() {
#if defined(__SANITIZE_THREAD__)
  return {CpuBackend(1)};
#else
  return {CpuBackend(1), CpuBackend(3)};
#endif
}

// A device with its stream, and host vectors as tensors on it.
class KernelRig {
 public:
  explicit KernelRig(const Backend& backend)
      : device_(backend.create()), stream_(*device_->CreateStream()) {}

  // Uninitialised but for a canary, so that a kernel that forgets an output is seen.
  Tensor New(Shape shape, DType dtype = DType::kFloat32) {
    std::vector<char> canary(shape.num_elements() * DTypeSizeBytes(dtype), 0x7e);
    return Put(canary.data(), shape, dtype);
  }
  Tensor Put(const std::vector<float>& values, Shape shape) {
    EXPECT_EQ(static_cast<int64_t>(values.size()), shape.num_elements());
    return Put(values.data(), shape, DType::kFloat32);
  }
  // Rounded to dtype.
  Tensor Put(const std::vector<float>& values, Shape shape, DType dtype) {
    if (dtype == DType::kFloat32) return Put(values, shape);
    std::vector<uint16_t> bits(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      BFloat16 bf16;
      Float16 fp16;
      FromFloat(values[i], &bf16);
      FromFloat(values[i], &fp16);
      bits[i] = dtype == DType::kBFloat16 ? bf16.bits : fp16.bits;
    }
    return Put(bits.data(), shape, dtype);
  }
  Tensor PutIds(const std::vector<int32_t>& values, Shape shape) {
    return Put(values.data(), shape, DType::kInt32);
  }
  // Of any floating dtype.
  std::vector<float> Get(const Tensor& tensor) {
    std::vector<float> values(tensor.num_elements());
    std::vector<uint16_t> bits(tensor.num_elements());
    const bool wide = tensor.dtype() == DType::kFloat32;
    void* host = wide ? static_cast<void*>(values.data()) : bits.data();
    EXPECT_TRUE(device_->CopyOut(tensor, host, tensor.size_bytes(), *stream_).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    for (size_t i = 0; i < bits.size() && !wide; ++i) {
      values[i] = tensor.dtype() == DType::kBFloat16 ? ToFloat(BFloat16{bits[i]})
                                                     : ToFloat(Float16{bits[i]});
    }
    return values;
  }
  std::vector<float> Random(int64_t count, double scale = 1, double offset = 0) {
    std::normal_distribution<double> normal(offset, scale);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(normal(random_));
    return values;
  }
  // Elements of dtype.
  std::vector<float> RandomOf(DType dtype, int64_t count, double scale = 1, double offset = 0) {
    std::vector<float> values = Random(count, scale, offset);
    for (float& value : values) value = RoundTo(dtype, value);
    return values;
  }
  std::vector<int32_t> RandomIds(int64_t count, int32_t low, int32_t high) {
    std::uniform_int_distribution<int32_t> uniform(low, high);
    std::vector<int32_t> values(count);
    for (int32_t& value : values) value = uniform(random_);
    return values;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::mt19937 random_{20240607};

 private:
  Tensor Put(const void* values, Shape shape, DType dtype) {
    const int64_t bytes = shape.num_elements() * DTypeSizeBytes(dtype);
    buffers_.push_back(*device_->Allocate(bytes, MemoryCategory::kWorkspace, "test"));
    const Tensor tensor = buffers_.back().View(dtype, shape);
    EXPECT_TRUE(device_->CopyIn(values, bytes, tensor, *stream_).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return tensor;
  }
  std::vector<DeviceBuffer> buffers_;
};

// One rig per test, on each backend.
class KernelTest : public testing::TestWithParam<Backend>, public KernelRig {
 protected:
  KernelTest() : KernelRig(GetParam()) {}
};

#define TESSERA_INSTANTIATE_KERNEL_TEST(Suite)                             \
  INSTANTIATE_TEST_SUITE_P(Backends, Suite, testing::ValuesIn(Backends()), \
                           [](const auto& info) { return info.param.name; })

}  // namespace tessera

#endif  // TESSERA_KERNELS_CONFORMANCE_H_
