#include <latch>
#include <thread>
#include <utility>

#include "worker/comm/conformance.h"

namespace tessera {

GroupSpec TestRank::Spec(const std::string& name, int64_t epoch,
                         const std::vector<int>& ranks) const {
  GroupSpec spec;
  spec.name = name;
  spec.job_uid = "job";
  spec.epoch = epoch;
  spec.timeout = absl::Seconds(60);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == index) spec.group_rank = static_cast<int>(i);
    spec.members.push_back(
        {100 + ranks[i], absl::StrCat("workers/w", ranks[i]), addresses[ranks[i]]});
  }
  return spec;
}

GroupSpec TestRank::Spec(const std::string& name, int64_t epoch) const {
  std::vector<int> all(size);
  for (int r = 0; r < size; ++r) all[r] = r;
  return Spec(name, epoch, all);
}

std::unique_ptr<Communicator> TestRank::Join(const GroupSpec& spec) const {
  auto communicator = transport->Join(spec);
  EXPECT_TRUE(communicator.ok()) << communicator.status();
  return communicator.ok() ? *std::move(communicator) : nullptr;
}

void ThreadWorld::Run(int size, const std::function<void(TestRank&)>& body) {
  std::vector<std::unique_ptr<CpuDevice>> devices;
  std::vector<CpuDevice*> raw;
  for (int r = 0; r < size; ++r) {
    devices.push_back(*CpuDevice::Create(absl::StrCat("cpu:", r), kTestArenaBytes));
    raw.push_back(devices.back().get());
  }
  Transports transports = factory_(raw);
  std::vector<std::string> addresses;
  for (const auto& transport : transports.transports) addresses.push_back(transport->address());
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      std::unique_ptr<Stream> stream = *raw[r]->CreateStream();
      TestRank rank{r, size, transports.transports[r].get(), raw[r], stream.get(), addresses};
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

DeviceBuffer AllocateElements(TestRank& rank, int64_t count, DType dtype) {
  return *rank.device->Allocate(count * DTypeSizeBytes(dtype), MemoryCategory::kWorkspace, "test");
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorConformance);

}  // namespace tessera
