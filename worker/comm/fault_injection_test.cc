#include "worker/comm/fault_injection.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "kernels/cpu/cpu_device.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {
namespace {

class FaultInjectionTest : public testing::Test {
 protected:
  // A group of one, global rank 7.
  std::unique_ptr<FaultInjectionCommunicator> Make(const Fault& fault) {
    GroupSpec spec;
    spec.name = "dp";
    spec.job_uid = "job";
    spec.members = {{7, "workers/w7", transport_->address()}};
    return std::make_unique<FaultInjectionCommunicator>(*transport_->Join(spec), fault);
  }

  std::unique_ptr<CpuDevice> device_ = *CpuDevice::Create("cpu:0", 1 << 20);
  std::unique_ptr<Stream> stream_ = *device_->CreateStream();
  InProcessHub hub_;
  std::unique_ptr<Transport> transport_ = hub_.CreateTransport(*device_);
};

TEST_F(FaultInjectionTest, FailsAtTheNthOperationAndAfter) {
  auto comm = Make({Fault::Kind::kFail, 7, 3, absl::InternalError("planned")});
  EXPECT_TRUE(comm->Barrier(*stream_).ok());
  EXPECT_TRUE(comm->Barrier(*stream_).ok());
  EXPECT_EQ(comm->Barrier(*stream_), absl::InternalError("planned"));
  EXPECT_EQ(comm->Barrier(*stream_), absl::InternalError("planned"));
}

TEST_F(FaultInjectionTest, LeavesOtherRanksAlone) {
  auto comm = Make({Fault::Kind::kFail, 6, 1, absl::InternalError("planned")});
  EXPECT_TRUE(comm->Barrier(*stream_).ok());
}

TEST_F(FaultInjectionTest, HangsUntilAborted) {
  auto comm = Make({Fault::Kind::kHang, 7, 2, {}});
  EXPECT_TRUE(comm->Barrier(*stream_).ok());
  std::thread control([&] {
    PendingOperation pending;
    while (!comm->pending(&pending)) std::this_thread::yield();
    EXPECT_EQ(pending.kind, CollectiveKind::kBarrier);
    EXPECT_EQ(pending.sequence, 2);
    comm->Abort(absl::AbortedError("enough"));
  });
  EXPECT_EQ(comm->Barrier(*stream_), absl::AbortedError("enough"));
  control.join();
}

// Only the nth of one kind counts, and the process is gone.
TEST_F(FaultInjectionTest, DiesAtTheNthOperationOfAKind) {
  for (const Fault::Kind kind : {Fault::Kind::kDie, Fault::Kind::kDieStarted}) {
    Fault fault;
    fault.kind = kind;
    fault.global_rank = 7;
    fault.operation = 2;
    fault.only = CollectiveKind::kBarrier;
    EXPECT_EXIT(
        {
          auto comm = Make(fault);
          DeviceBuffer buffer = *device_->Allocate(4, MemoryCategory::kWorkspace, "test");
          const Tensor tensor = buffer.View(DType::kFloat32, {1});
          if (!comm->Barrier(*stream_).ok()) _exit(1);
          for (int i = 0; i < 3; ++i) {
            if (!comm->AllReduce(tensor, ReduceOp::kSum, *stream_).ok()) _exit(1);
          }
          comm->Barrier(*stream_).IgnoreError();
          _exit(2);
        },
        testing::KilledBySignal(SIGKILL), "");
  }
}

}  // namespace
}  // namespace tessera
