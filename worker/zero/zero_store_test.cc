// When weights and gradients of a unit are there, and what they cost.
#include "worker/zero/zero_store.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/fp32_copy.h"
#include "worker/comm/in_process_transport.h"

namespace tessera {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kUnitElements = 256, kUnitBytes = kUnitElements * 4;

std::vector<UnitSpec> FourUnits() {
  std::vector<UnitSpec> units;
  for (int i = 0; i < 4; ++i) {
    ParameterSpec weight;
    weight.name = absl::StrCat("w", i);
    weight.shape = weight.local_shape = Shape{kUnitElements};
    units.push_back({absl::StrCat("layer.", i), {weight}});
  }
  return units;
}

// One rank's view of a store in a zero group of two.
struct Rank {
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<ZeroStore> store;

  int64_t Held(MemoryCategory category) const {
    return device->arena().usage().category[static_cast<int>(category)].current_bytes;
  }
  // Units whose whole weights or gradients are there for a time.
  int64_t WholeUnits() const { return Held(MemoryCategory::kCommunication) / kUnitBytes; }
  void Fill(absl::Span<const Tensor> tensors, float value) {
    const std::vector<float> values(kUnitElements, value);
    ASSERT_TRUE(CopyInFp32(values, tensors[0], *stream).ok());
  }
  std::vector<float> Read(const Tensor& tensor) {
    std::vector<float> values(tensor.num_elements());
    EXPECT_TRUE(CopyOutFp32(tensor, absl::MakeSpan(values), *stream).ok());
    return values;
  }
};

// Runs body on both ranks at once.
void OnTwoRanks(const ZeroOptions& options, const std::function<void(Rank&, int)>& body) {
  InProcessHub hub;
  Rank ranks[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    ranks[r].device = *CpuDevice::Create(absl::StrCat("workers/w", r, " cpu:0"), 1 << 20);
    ranks[r].stream = *ranks[r].device->CreateStream();
    ranks[r].transport = hub.CreateTransport(*ranks[r].device);
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Rank& rank = ranks[r];
      GroupSpec spec;
      spec.name = "zero[pp=0,tp=0]";
      spec.job_uid = "store";
      spec.group_rank = r;
      for (int m = 0; m < kRanks; ++m) {
        spec.members.push_back({m, absl::StrCat("workers/w", m), ranks[m].transport->address()});
      }
      rank.group = *rank.transport->Join(spec);
      rank.store =
          *ZeroStore::Create(FourUnits(), options, rank.group.get(), *rank.device, *rank.stream);
      body(rank, r);
      rank.store = nullptr;
      EXPECT_EQ(rank.device->arena().usage().current_bytes, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ZeroStore, HoldsWhatItsStageSays) {
  struct Case {
    int zero_stage;
    int64_t parameters, gradients;
  };
  for (const Case& c : {Case{0, 4, 4}, Case{1, 4, 4}, Case{2, 4, 2}, Case{3, 2, 2}}) {
    OnTwoRanks({.zero_stage = c.zero_stage}, [&](Rank& rank, int) {
      EXPECT_EQ(rank.Held(MemoryCategory::kParameters), c.parameters * kUnitBytes);
      EXPECT_EQ(rank.Held(MemoryCategory::kGradients), c.gradients * kUnitBytes);
      EXPECT_EQ(rank.WholeUnits(), 0);
    });
  }
}

TEST(ZeroStore, GathersAUnitWhileItIsUsed) {
  OnTwoRanks({.zero_stage = 3, .prefetch_units = 0}, [](Rank& rank, int) {
    std::vector<float> values(kUnitElements);
    for (int64_t i = 0; i < kUnitElements; ++i) values[i] = static_cast<float>(i);
    // Each rank keeps its half of what all write.
    ASSERT_TRUE(rank.store->Write({1, 0}, 0, values, *rank.stream).ok());
    const auto first = rank.store->AcquireParameters(1, *rank.stream);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(rank.Read((*first)[0]), values);
    const auto second = rank.store->AcquireParameters(1, *rank.stream);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(rank.WholeUnits(), 1);
    EXPECT_EQ(rank.group->stats()[static_cast<int>(CollectiveKind::kAllGather)].calls, 1);
    ASSERT_TRUE(rank.store->ReleaseParameters(1, *rank.stream).ok());
    EXPECT_EQ(rank.WholeUnits(), 1);
    ASSERT_TRUE(rank.store->ReleaseParameters(1, *rank.stream).ok());
    EXPECT_EQ(rank.WholeUnits(), 0);
  });
}

TEST(ZeroStore, PrefetchesAsManyUnitsAsItMay) {
  OnTwoRanks({.zero_stage = 3, .prefetch_units = 2}, [](Rank& rank, int) {
    ASSERT_TRUE(rank.store->AcquireParameters(0, *rank.stream).ok());
    ASSERT_TRUE(rank.store->PrefetchParameters({1, 2, 3}, *rank.stream).ok());
    EXPECT_EQ(rank.WholeUnits(), 3);
    ASSERT_TRUE(rank.store->PrefetchParameters({1, 2, 3}, *rank.stream).ok());  // no second time
    for (const int unit : {1, 2})
      ASSERT_TRUE(rank.store->AcquireParameters(unit, *rank.stream).ok());
    EXPECT_EQ(rank.group->stats()[static_cast<int>(CollectiveKind::kAllGather)].calls, 3);
    for (const int unit : {0, 1, 2}) {
      ASSERT_TRUE(rank.store->ReleaseParameters(unit, *rank.stream).ok());
    }
    EXPECT_EQ(rank.WholeUnits(), 0);
  });
}

TEST(ZeroStore, SmallUnitsStayWhole) {
  OnTwoRanks({.zero_stage = 3, .resident_parameters = kUnitElements}, [](Rank& rank, int) {
    EXPECT_EQ(rank.Held(MemoryCategory::kParameters), 4 * kUnitBytes);
    ASSERT_TRUE(rank.store->AcquireParameters(0, *rank.stream).ok());
    EXPECT_EQ(rank.WholeUnits(), 0);
  });
}

// One micro-batch of value on every rank, last unit first.
void Backward(Rank& rank, float value) {
  for (int unit = 3; unit >= 0; --unit) {
    const auto gradients = rank.store->AcquireGradients(unit, *rank.stream);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    std::vector<float> values = rank.Read((*gradients)[0]);
    for (float& each : values) each += value;
    ASSERT_TRUE(CopyInFp32(values, (*gradients)[0], *rank.stream).ok());
    ASSERT_TRUE(rank.store->GradientsReady(unit, *rank.stream).ok());
  }
}

TEST(ZeroStore, ReducesGradientsInEveryStageAlike) {
  for (const plan::GradientReduction reduction :
       {plan::GradientReduction::kOnce, plan::GradientReduction::kPerMicroBatch}) {
    for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
      const ZeroOptions options{
          .zero_stage = zero_stage, .micro_batches = 2, .reduction = reduction};
      OnTwoRanks(options, [](Rank& rank, int r) {
        for (int step = 0; step < 2; ++step) {
          rank.store->gradients().Clear();
          Backward(rank, static_cast<float>(1 + r));
          Backward(rank, static_cast<float>(10 * (1 + r)));
          ASSERT_TRUE(rank.store->gradients().FinishReduction(*rank.stream).ok());
          for (int unit = 0; unit < 4; ++unit) {
            EXPECT_EQ(rank.Read(*rank.store->gradients().AcquireReduced(unit, *rank.stream)),
                      std::vector<float>(kUnitElements / kRanks, 33));
          }
        }
      });
    }
  }
}

TEST(ZeroStore, WholeGradientsGoWithTheirReduction) {
  OnTwoRanks({.zero_stage = 2}, [](Rank& rank, int) {
    rank.store->gradients().Clear();
    Backward(rank, 1);
    // The last one's reduction is pending; the one before made room for it.
    EXPECT_EQ(rank.WholeUnits(), 1);
    ASSERT_TRUE(rank.store->Settle().ok());
    EXPECT_EQ(rank.WholeUnits(), 0);
  });
  // Two micro-batches that are reduced once: all units until the last.
  OnTwoRanks({.zero_stage = 2, .micro_batches = 2}, [](Rank& rank, int) {
    rank.store->gradients().Clear();
    Backward(rank, 1);
    EXPECT_EQ(rank.WholeUnits(), 4);
    Backward(rank, 1);
    ASSERT_TRUE(rank.store->Settle().ok());
    EXPECT_EQ(rank.WholeUnits(), 0);
  });
}

TEST(ZeroStore, OutOfMemoryNamesWhatIsMissing) {
  OnTwoRanks({.zero_stage = 3, .prefetch_units = 0}, [](Rank& rank, int r) {
    // Room for one whole unit is left.
    const ArenaUsage usage = rank.device->arena().usage();
    auto others = rank.device->Allocate(usage.capacity_bytes - usage.current_bytes - kUnitBytes,
                                        MemoryCategory::kWorkspace, "others");
    ASSERT_TRUE(others.ok());
    ASSERT_TRUE(rank.store->AcquireParameters(0, *rank.stream).ok());
    const absl::Status status = rank.store->AcquireParameters(1, *rank.stream).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    for (const std::string& part :
         {absl::StrCat("workers/w", r, " cpu:0"), std::string("communication"),
          std::string("gathered unit layer.1"), absl::StrCat(kUnitBytes)}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status;
    }
    ASSERT_TRUE(rank.store->ReleaseParameters(0, *rank.stream).ok());
    // Nothing is half done.
    EXPECT_TRUE(rank.store->AcquireParameters(1, *rank.stream).ok());
  });
}

// A store that goes with a gather pending does not wait for members that may never come.
TEST(ZeroStore, GoesWithoutWaiting) {
  OnTwoRanks({.zero_stage = 3}, [](Rank& rank, int r) {
    if (r == 0) {
      ASSERT_TRUE(rank.store->PrefetchParameters({0}, *rank.stream).ok());
    }
    rank.store = nullptr;
  });
}

}  // namespace
}  // namespace tessera
