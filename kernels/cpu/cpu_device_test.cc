#include "kernels/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/huge_pages.h"

namespace tessera {
namespace {

TEST(CpuDevice, CopiesInOutAndBetween) {
  auto device = *CpuDevice::Create("cpu:0", 1 << 20);
  auto stream = *device->CreateStream();
  auto buffer = *device->Allocate(64, MemoryCategory::kWorkspace, "test");
  Tensor a = buffer.View(DType::kFloat32, {4});
  Tensor b = buffer.View(DType::kFloat32, {2, 2}, 32);
  std::vector<float> in = {1, 2, 3, 4}, out(4);
  ASSERT_TRUE(device->CopyIn(in.data(), 16, a, *stream).ok());
  ASSERT_TRUE(device->Copy(a, b, *stream).ok());
  ASSERT_TRUE(device->SetZero(a, *stream).ok());
  ASSERT_TRUE(device->CopyOut(b, out.data(), 16, *stream).ok());
  EXPECT_EQ(out, in);
  ASSERT_TRUE(device->CopyOut(a, out.data(), 16, *stream).ok());
  EXPECT_EQ(out, std::vector<float>(4, 0.0f));
}

TEST(CpuDevice, RefusesMismatchedSizesAndStridedCopies) {
  auto device = *CpuDevice::Create("cpu:0", 1 << 20);
  auto stream = *device->CreateStream();
  auto buffer = *device->Allocate(64, MemoryCategory::kWorkspace, "test");
  float host[16] = {};
  Tensor a = buffer.View(DType::kFloat32, {4, 4});
  EXPECT_EQ(device->CopyIn(host, 60, a, *stream).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device->CopyIn(host, 32, a.Columns(0, 2), *stream).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CpuDevice, BuffersGoBackToTheArena) {
  auto device = *CpuDevice::Create("cpu:0", 1 << 20);
  {
    auto buffer = *device->Allocate(1 << 19, MemoryCategory::kWorkspace, "test");
    DeviceBuffer moved = std::move(buffer);
    EXPECT_TRUE(buffer.is_null());
    EXPECT_GT(device->arena().usage().current_bytes, 0);
  }
  EXPECT_EQ(device->arena().usage().current_bytes, 0);
}

TEST(CpuDevice, HugePagesAreOfThisProcessAlone) {
  constexpr int64_t kBytes = (5 << 20) + 4096;
  auto device = *CpuDevice::Create("host:0", kBytes, 1, CpuMemory::kHugePages);
  EXPECT_EQ(device->memfd(), -1);
  EXPECT_EQ(device->base_address() % kHugePageBytes, 0);
  EXPECT_EQ(device->mapped_bytes(), kBytes);
  auto buffer = *device->Allocate(kBytes, MemoryCategory::kWorkspace, "test");
  auto stream = *device->CreateStream();
  EXPECT_TRUE(device->SetZero(buffer.View(DType::kUInt8, {kBytes}), *stream).ok());
}

TEST(CpuDevice, RefusesNonsense) {
  EXPECT_EQ(CpuDevice::Create("cpu:0", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CpuDevice::Create("cpu:0", 1, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera
