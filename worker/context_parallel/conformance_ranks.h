// What the tests of this folder share: ranks as threads, and tensors on one of them.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_CONFORMANCE_RANKS_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_CONFORMANCE_RANKS_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/matrix_copy.h"
#include "worker/comm/conformance.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {

inline std::unique_ptr<World> MakeInProcessWorld() {
  return std::make_unique<ThreadWorld>([](const std::vector<CpuDevice*>& devices) {
    auto hub = std::make_shared<InProcessHub>();
    ThreadWorld::Transports result{hub, {}};
    for (CpuDevice* device : devices) result.transports.push_back(hub->CreateTransport(*device));
    return result;
  });
}

inline CommunicatorStats Minus(CommunicatorStats a, const CommunicatorStats& b) {
  for (int i = 0; i < kNumCollectiveKinds; ++i) {
    a[i].calls -= b[i].calls;
    a[i].bytes -= b[i].bytes;
  }
  return a;
}

inline void ExpectTraffic(const CommunicatorStats& counted, const CommunicatorStats& predicted) {
  for (int i = 0; i < kNumCollectiveKinds; ++i) {
    const char* name = CollectiveKindName(static_cast<CollectiveKind>(i));
    EXPECT_EQ(counted[i].calls, predicted[i].calls) << name;
    EXPECT_EQ(counted[i].bytes, predicted[i].bytes) << name;
  }
}

// Holds what it hands out. The device's memory is full of NaN from the start: its arena hands out
// its lowest bytes first.
class RankTensors {
 public:
  explicit RankTensors(TestRank& rank) : rank_(rank) {
    const DeviceBuffer memory =
        *rank.device->Allocate(kCanaryBytes, MemoryCategory::kWorkspace, "canary");
    const std::vector<uint8_t> canary(kCanaryBytes, 0xff);
    const Tensor bytes = memory.View(DType::kUInt8, {kCanaryBytes});
    EXPECT_TRUE(rank.device->CopyIn(canary.data(), kCanaryBytes, bytes, *rank.stream).ok());
  }

  Tensor New(DType dtype, Shape shape) {
    buffers_.push_back(*rank_.device->Allocate(shape.num_elements() * DTypeSizeBytes(dtype),
                                               MemoryCategory::kActivations, "test"));
    return buffers_.back().View(dtype, shape);
  }
  // to = values, which its dtype can hold.
  void Set(const float* values, const Tensor& to) {
    const Tensor wide = New(DType::kFloat32, to.shape());
    EXPECT_TRUE(rank_.device->CopyIn(values, wide.size_bytes(), wide, *rank_.stream).ok());
    EXPECT_TRUE(CopyMatrix(wide, to, *rank_.stream).ok());
  }
  std::vector<float> Get(const Tensor& from) {
    const Tensor wide = New(DType::kFloat32, from.shape());
    std::vector<float> values(from.num_elements());
    EXPECT_TRUE(CopyMatrix(from, wide, *rank_.stream).ok());
    EXPECT_TRUE(rank_.device->CopyOut(wide, values.data(), wide.size_bytes(), *rank_.stream).ok());
    return values;
  }

 private:
  static constexpr int64_t kCanaryBytes = int64_t{8} << 20;

  TestRank& rank_;
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_CONFORMANCE_RANKS_H_
