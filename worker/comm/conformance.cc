// The whole suite in one file, longer than others: a parameterised suite is one promise, read from
// top to bottom (arithmetic, agreement, abort, time-outs, waiting), and every transport runs all of
// it.
#include "worker/comm/conformance.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <latch>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/comm/reference.h"
#include "worker/comm/schedule.h"

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

namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64};
constexpr int kRanks[] = {1, 2, 3, 4, 5, 8};

// A tensor with its memory.
struct Owned {
  DeviceBuffer buffer;
  Tensor tensor;
};

Owned Make(TestRank& rank, DType dtype, int64_t count) {
  Owned owned{AllocateElements(rank, count, dtype), {}};
  owned.tensor = owned.buffer.View(dtype, {count});
  return owned;
}

Owned Make(TestRank& rank, DType dtype, const Bytes& data) {
  Owned owned = Make(rank, dtype, static_cast<int64_t>(data.size()) / DTypeSizeBytes(dtype));
  EXPECT_TRUE(rank.device->CopyIn(data.data(), data.size(), owned.tensor, *rank.stream).ok());
  return owned;
}

Bytes Read(TestRank& rank, const Tensor& tensor) {
  Bytes data(tensor.size_bytes());
  EXPECT_TRUE(rank.device->CopyOut(tensor, data.data(), data.size(), *rank.stream).ok());
  return data;
}

Bytes Part(const Bytes& data, DType dtype, ElementRange range) {
  const int64_t size = DTypeSizeBytes(dtype);
  return Bytes(data.begin() + range.begin * size,
               data.begin() + (range.begin + range.count) * size);
}

std::vector<Bytes> Inputs(DType dtype, int64_t count, int size, uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < size; ++r) inputs.push_back(TestData(dtype, count, r, seed));
  return inputs;
}

#define EXPECT_OK(expression)                  \
  do {                                         \
    const absl::Status status_ = (expression); \
    EXPECT_TRUE(status_.ok()) << status_;      \
  } while (false)

}  // namespace

TEST_P(CommunicatorConformance, AllReduceIsExactForEveryDtypeOpAndSize) {
  for (int size : kRanks) {
    Run(size, [](TestRank& rank) {
      auto comm = rank.Join(rank.Spec("dp"));
      ASSERT_NE(comm, nullptr);
      for (DType dtype : kDTypes) {
        for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
          for (int64_t count : {0, 1, 7, 1000, 4099}) {
            const std::vector<Bytes> inputs = Inputs(dtype, count, rank.size, count);
            Owned tensor = Make(rank, dtype, inputs[rank.index]);
            EXPECT_OK(comm->AllReduce(tensor.tensor, op, *rank.stream));
            EXPECT_EQ(Read(rank, tensor.tensor), ReferenceReduce(dtype, op, inputs))
                << DTypeName(dtype) << " " << count << " over " << rank.size;
          }
        }
      }
    });
  }
}

TEST_P(CommunicatorConformance, LargeTensorsAreExact) {
  for (int size : {2, 3}) {
    Run(size, [](TestRank& rank) {
      auto comm = rank.Join(rank.Spec("dp"));
      ASSERT_NE(comm, nullptr);
      const int64_t count = 1'200'000 + 5 * rank.size;  // two or three pieces, an odd tail
      const int64_t block = count / rank.size;
      const std::vector<Bytes> inputs =
          Inputs(DType::kFloat32, count / rank.size * rank.size, rank.size, 1);
      const Bytes sum = ReferenceReduce(DType::kFloat32, ReduceOp::kSum, inputs);
      Owned tensor = Make(rank, DType::kFloat32, inputs[rank.index]);
      Owned scattered = Make(rank, DType::kFloat32, block);
      EXPECT_OK(comm->ReduceScatter(tensor.tensor, scattered.tensor, ReduceOp::kSum, *rank.stream));
      EXPECT_OK(comm->AllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream));
      EXPECT_TRUE(Read(rank, tensor.tensor) == sum);
      EXPECT_TRUE(Read(rank, scattered.tensor) ==
                  Part(sum, DType::kFloat32, {block * rank.index, block}));
      Owned gathered = Make(rank, DType::kFloat32, block * rank.size);
      EXPECT_OK(comm->AllGather(scattered.tensor, gathered.tensor, *rank.stream));
      EXPECT_TRUE(Read(rank, gathered.tensor) == sum);
    });
  }
}

TEST_P(CommunicatorConformance, ReduceScatterThenAllGatherIsAllReduce) {
  for (int size : kRanks) {
    Run(size, [](TestRank& rank) {
      auto comm = rank.Join(rank.Spec("dp"));
      ASSERT_NE(comm, nullptr);
      for (DType dtype : kDTypes) {
        for (int64_t block : {0, 1, 7, 1025}) {
          const int64_t count = block * rank.size;
          const std::vector<Bytes> inputs = Inputs(dtype, count, rank.size, block);
          Owned tensor = Make(rank, dtype, inputs[rank.index]);
          const Tensor own = tensor.tensor.Slice(block * rank.index, block);
          // In place: the output is the own block of the input, then the other way round.
          EXPECT_OK(comm->ReduceScatter(tensor.tensor, own, ReduceOp::kSum, *rank.stream));
          EXPECT_OK(comm->AllGather(own, tensor.tensor, *rank.stream));
          Owned reduced = Make(rank, dtype, inputs[rank.index]);
          EXPECT_OK(comm->AllReduce(reduced.tensor, ReduceOp::kSum, *rank.stream));
          EXPECT_EQ(Read(rank, tensor.tensor), Read(rank, reduced.tensor));
          EXPECT_EQ(Read(rank, tensor.tensor), ReferenceReduce(dtype, ReduceOp::kSum, inputs));
        }
      }
    });
  }
}

TEST_P(CommunicatorConformance, MovesEveryDtype) {
  for (int size : kRanks) {
    Run(size, [](TestRank& rank) {
      auto comm = rank.Join(rank.Spec("dp"));
      ASSERT_NE(comm, nullptr);
      for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kUInt8}) {
        for (int64_t block : {0, 1, 7, 3001}) {
          const std::vector<Bytes> inputs = Inputs(dtype, block * rank.size, rank.size, block);
          Owned input = Make(rank, dtype, inputs[rank.index]);
          Owned output = Make(rank, dtype, block * rank.size);
          EXPECT_OK(comm->AllToAll(input.tensor, output.tensor, *rank.stream));
          Bytes expected;
          for (const Bytes& each : inputs) {
            const Bytes part = Part(each, dtype, {block * rank.index, block});
            expected.insert(expected.end(), part.begin(), part.end());
          }
          EXPECT_EQ(Read(rank, output.tensor), expected);

          EXPECT_OK(comm->AllGather(input.tensor.Slice(0, block), output.tensor, *rank.stream));
          expected.clear();
          for (const Bytes& each : inputs) {
            const Bytes part = Part(each, dtype, {0, block});
            expected.insert(expected.end(), part.begin(), part.end());
          }
          EXPECT_EQ(Read(rank, output.tensor), expected);

          const int root = rank.size - 1;
          EXPECT_OK(comm->Broadcast(input.tensor, root, *rank.stream));
          EXPECT_EQ(Read(rank, input.tensor), inputs[root]);
        }
      }
    });
  }
}

// Everybody waits for its send first: that must move on the receive it has started as well.
TEST_P(CommunicatorConformance, RingOfSendsAndReceives) {
  for (int size : {2, 3, 8}) {
    Run(size, [](TestRank& rank) {
      auto comm = rank.Join(rank.Spec("cp"));
      ASSERT_NE(comm, nullptr);
      const int next = (rank.index + 1) % rank.size,
                prev = (rank.index + rank.size - 1) % rank.size;
      for (int64_t count : {0, 1, 100, 400001}) {
        Owned out = Make(rank, DType::kFloat32, TestData(DType::kFloat32, count, rank.index));
        Owned in = Make(rank, DType::kFloat32, count);
        auto send = comm->StartSend(out.tensor, next, *rank.stream);
        auto recv = comm->StartRecv(in.tensor, prev, *rank.stream);
        ASSERT_TRUE(send.ok() && recv.ok());
        EXPECT_OK((*send)->Wait());
        EXPECT_OK((*recv)->Wait());
        EXPECT_TRUE(Read(rank, in.tensor) == TestData(DType::kFloat32, count, prev));
      }
    });
  }
}

TEST_P(CommunicatorConformance, MessagesArriveInOrderAndCompleteInAnyOrder) {
  Run(2, [](TestRank& rank) {
    auto comm = rank.Join(rank.Spec("pp"));
    ASSERT_NE(comm, nullptr);
    constexpr int kMessages = 20;
    std::vector<Owned> tensors;
    std::vector<std::unique_ptr<CollectiveHandle>> handles;
    for (int m = 0; m < kMessages; ++m) {
      const int64_t count = 100 * m;
      if (rank.index == 0) {
        tensors.push_back(Make(rank, DType::kFloat32, TestData(DType::kFloat32, count, m)));
      } else {
        tensors.push_back(Make(rank, DType::kFloat32, count));
      }
      auto handle = rank.index == 0 ? comm->StartSend(tensors.back().tensor, 1, *rank.stream)
                                    : comm->StartRecv(tensors.back().tensor, 0, *rank.stream);
      ASSERT_TRUE(handle.ok()) << handle.status();
      handles.push_back(*std::move(handle));
    }
    for (int m = kMessages - 1; m >= 0; --m) EXPECT_OK(handles[m]->Wait());
    for (int m = 0; m < kMessages && rank.index == 1; ++m) {
      EXPECT_EQ(Read(rank, tensors[m].tensor), TestData(DType::kFloat32, 100 * m, m));
    }
  });
}

TEST_P(CommunicatorConformance, SeveralCollectivesUnderWay) {
  Run(3, [](TestRank& rank) {
    auto comm = rank.Join(rank.Spec("dp"));
    ASSERT_NE(comm, nullptr);
    std::vector<Owned> tensors;
    std::vector<std::unique_ptr<CollectiveHandle>> handles;
    for (int k = 0; k < 30; ++k) {
      tensors.push_back(
          Make(rank, DType::kFloat32, TestData(DType::kFloat32, 10 * k, rank.index, k)));
      auto handle = comm->StartAllReduce(tensors.back().tensor, ReduceOp::kSum, *rank.stream);
      ASSERT_TRUE(handle.ok()) << handle.status();
      handles.push_back(*std::move(handle));
    }
    for (auto& handle : handles) EXPECT_OK(handle->Wait());
    for (int k = 0; k < 30; ++k) {
      EXPECT_EQ(Read(rank, tensors[k].tensor),
                ReferenceReduce(DType::kFloat32, ReduceOp::kSum,
                                Inputs(DType::kFloat32, 10 * k, rank.size, k)));
    }
  });
}

// Members post up to 64 ahead of what they have waited for, at different paces: nobody overwrites a
// posting, or the data it carries, that another is still to read.
TEST_P(CommunicatorConformance, MembersRunAheadOfEachOther) {
  Run(3, [](TestRank& rank) {
    auto comm = rank.Join(rank.Spec("dp"));
    ASSERT_NE(comm, nullptr);
    constexpr int kOperations = 400;
    constexpr std::array<size_t, 3> kAhead = {64, 1, 20};
    struct Started {
      int number;
      Owned tensor;
      std::unique_ptr<CollectiveHandle> handle;
    };
    std::deque<Started> started;
    // Most inputs are small enough to travel in the posting.
    const auto elements = [](int number) { return number % 7 == 3 ? 100 : 1 + number % 16; };
    const auto finish_first = [&] {
      Started& first = started.front();
      EXPECT_OK(first.handle->Wait());
      EXPECT_EQ(Read(rank, first.tensor.tensor),
                ReferenceReduce(
                    DType::kFloat32, ReduceOp::kSum,
                    Inputs(DType::kFloat32, elements(first.number), rank.size, first.number)));
      started.pop_front();
    };
    for (int k = 0; k < kOperations; ++k) {
      if (started.size() == kAhead[rank.index]) finish_first();
      Owned tensor =
          Make(rank, DType::kFloat32, TestData(DType::kFloat32, elements(k), rank.index, k));
      auto handle = comm->StartAllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream);
      ASSERT_TRUE(handle.ok()) << handle.status();
      started.push_back({k, std::move(tensor), *std::move(handle)});
    }
    while (!started.empty()) finish_first();
  });
}

TEST_P(CommunicatorConformance, SeveralGroupsPerProcess) {
  Run(4, [](TestRank& rank) {
    // A 2 x 2 grid: rows, columns, all, and itself alone.
    const int row = rank.index / 2, column = rank.index % 2;
    auto all = rank.Join(rank.Spec("world"));
    auto tp = rank.Join(rank.Spec(absl::StrCat("tp", row), 1, {2 * row, 2 * row + 1}));
    auto dp = rank.Join(rank.Spec(absl::StrCat("dp", column), 1, {column, column + 2}));
    auto self = rank.Join(rank.Spec(absl::StrCat("self", rank.index), 1, {rank.index}));
    ASSERT_TRUE(all && tp && dp && self);
    for (int k = 0; k < 50; ++k) {
      int64_t value = rank.index;
      Owned tensor = Make(rank, DType::kInt64, 1);
      const auto set = [&] {
        EXPECT_OK(rank.device->CopyIn(&value, 8, tensor.tensor, *rank.stream));
      };
      const auto get = [&] {
        int64_t result = -1;
        EXPECT_OK(rank.device->CopyOut(tensor.tensor, &result, 8, *rank.stream));
        return result;
      };
      set();
      EXPECT_OK(tp->AllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream));
      EXPECT_EQ(get(), 4 * row + 1);
      set();
      EXPECT_OK(dp->AllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream));
      EXPECT_EQ(get(), 2 * column + 2);
      set();
      EXPECT_OK(self->AllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream));
      EXPECT_EQ(get(), rank.index);
      EXPECT_OK(all->AllReduce(tensor.tensor, ReduceOp::kMax, *rank.stream));
      EXPECT_EQ(get(), 3);
    }
  });
}

TEST_P(CommunicatorConformance, GroupsFormAnewUnderTheSameName) {
  Run(3, [](TestRank& rank) {
    for (int64_t epoch = 1; epoch <= 10; ++epoch) {
      auto comm = rank.Join(rank.Spec("dp", epoch));
      ASSERT_NE(comm, nullptr);
      EXPECT_OK(comm->Barrier(*rank.stream));
    }
  });
}

TEST_P(CommunicatorConformance, CountsCallsAndBytes) {
  Run(2, [](TestRank& rank) {
    auto comm = rank.Join(rank.Spec("dp"));
    ASSERT_NE(comm, nullptr);
    Owned small = Make(rank, DType::kFloat32, 8), large = Make(rank, DType::kFloat32, 16);
    EXPECT_OK(rank.device->SetZero(small.tensor, *rank.stream));
    EXPECT_OK(comm->AllGather(small.tensor, large.tensor, *rank.stream));
    EXPECT_OK(comm->ReduceScatter(large.tensor, small.tensor, ReduceOp::kSum, *rank.stream));
    EXPECT_OK(comm->AllReduce(small.tensor, ReduceOp::kSum, *rank.stream));
    EXPECT_OK(comm->Barrier(*rank.stream));
    const CommunicatorStats stats = comm->stats();
    const auto count = [&](CollectiveKind kind) { return stats[static_cast<int>(kind)]; };
    EXPECT_EQ(count(CollectiveKind::kAllGather).bytes, 64);
    EXPECT_EQ(count(CollectiveKind::kReduceScatter).bytes, 64);
    EXPECT_EQ(count(CollectiveKind::kAllReduce).bytes, 32);
    EXPECT_EQ(count(CollectiveKind::kBarrier).calls, 1);
    EXPECT_EQ(count(CollectiveKind::kBarrier).bytes, 0);
    EXPECT_EQ(count(CollectiveKind::kSend).calls, 0);
    PendingOperation pending;
    EXPECT_FALSE(comm->pending(&pending));
  });
}

TEST_P(CommunicatorConformance, RefusesWhatCannotBe) {
  Run(2, [](TestRank& rank) {
    auto comm = rank.Join(rank.Spec("dp"));
    ASSERT_NE(comm, nullptr);
    Owned a = Make(rank, DType::kFloat32, 8), b = Make(rank, DType::kFloat32, 8);
    Owned words = Make(rank, DType::kInt32, 8);
    Stream& stream = *rank.stream;
    const auto refused = [](const absl::Status& status, const std::string& why) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_NE(std::string(status.message()).find(why), std::string::npos) << status;
    };
    refused(comm->ReduceScatter(a.tensor, b.tensor, ReduceOp::kSum, stream), "2 times");
    refused(comm->AllGather(a.tensor, b.tensor, stream), "2 times");
    refused(comm->AllToAll(a.tensor, words.tensor, stream), "one size");
    refused(comm->AllReduce(words.tensor, ReduceOp::kSum, stream), "int32 is not reduced");
    refused(comm->AllReduce(a.tensor.Reshape({2, 4}).Columns(0, 2), ReduceOp::kSum, stream),
            "contiguous");
    refused(comm->AllReduce(Tensor(), ReduceOp::kSum, stream), "contiguous");
    refused(comm->Broadcast(a.tensor, 2, stream), "no group rank 2");
    refused(comm->Send(a.tensor, rank.index, stream), "to itself");
    const Tensor outside(rank.device, DType::kFloat32, {8},
                         rank.device->base_address() + rank.device->mapped_bytes() - 16);
    refused(comm->AllReduce(outside, ReduceOp::kSum, stream), "outside of the memory");
    // Nothing was started, so the group still works.
    EXPECT_OK(comm->Barrier(stream));
  });
}

TEST_P(CommunicatorConformance, MembersThatDisagreeAllLearnIt) {
  Run(3, [](TestRank& rank) {
    const std::vector<std::function<absl::Status(Communicator&, TestRank&)>> odd_ones = {
        [](Communicator& comm, TestRank& r) { return comm.Barrier(*r.stream); },
        [](Communicator& comm, TestRank& r) {
          return comm.AllReduce(Make(r, DType::kFloat32, 9).tensor, ReduceOp::kSum, *r.stream);
        },
        [](Communicator& comm, TestRank& r) {
          return comm.AllReduce(Make(r, DType::kInt64, 8).tensor, ReduceOp::kSum, *r.stream);
        },
        [](Communicator& comm, TestRank& r) {
          return comm.AllReduce(Make(r, DType::kFloat32, 8).tensor, ReduceOp::kMax, *r.stream);
        },
    };
    for (size_t k = 0; k < odd_ones.size(); ++k) {
      auto comm = rank.Join(rank.Spec("dp", static_cast<int64_t>(k)));
      ASSERT_NE(comm, nullptr);
      Owned tensor = Make(rank, DType::kFloat32, 8);
      const absl::Status status =
          rank.index == 1 ? odd_ones[k](*comm, rank)
                          : comm->AllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_NE(std::string(status.message()).find("members disagree"), std::string::npos)
          << status;
      // It stays.
      EXPECT_EQ(comm->Barrier(*rank.stream).code(), absl::StatusCode::kInvalidArgument);
    }
    auto comm = rank.Join(rank.Spec("pp"));
    ASSERT_NE(comm, nullptr);
    Owned tensor = Make(rank, DType::kFloat32, rank.index == 0 ? 8 : 7);
    absl::Status status;
    if (rank.index == 0) status = comm->Send(tensor.tensor, 1, *rank.stream);
    if (rank.index == 1) status = comm->Recv(tensor.tensor, 0, *rank.stream);
    // A small message may be on its way before its receiver sees it: then the next operation tells.
    if (status.ok()) status = comm->Barrier(*rank.stream);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  });
}

TEST_P(CommunicatorConformance, AbortReachesEveryMember) {
  Run(3, [](TestRank& rank) {
    std::vector<double> milliseconds;
    for (int64_t round = 0; round < 10; ++round) {
      auto comm = rank.Join(rank.Spec("dp", round));
      ASSERT_NE(comm, nullptr);
      // The abort may overtake the barrier on its way to a member over TCP.
      const absl::Status met = comm->Barrier(*rank.stream);
      EXPECT_TRUE(met.ok() || absl::IsAborted(met)) << met;
      Owned tensor = Make(rank, DType::kFloat32, 1000);
      if (rank.index == 2) {
        // Never calls the collective: the others wait until its control thread aborts.
        std::thread control([&] { comm->Abort(absl::AbortedError("drained")); });
        control.join();
      }
      // Some more under way, which also end: waited for last.
      std::vector<std::unique_ptr<CollectiveHandle>> others;
      Owned received = Make(rank, DType::kFloat32, 1000);
      if (rank.index != 2) {
        auto recv = comm->StartRecv(received.tensor, 2, *rank.stream);
        if (recv.ok()) others.push_back(*std::move(recv));
      }
      const auto start = std::chrono::steady_clock::now();
      const absl::Status status = comm->AllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream);
      for (auto& other : others) EXPECT_EQ(other->Wait().code(), absl::StatusCode::kAborted);
      milliseconds.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count());
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_NE(std::string(status.message()).find("drained"), std::string::npos) << status;
      EXPECT_NE(std::string(status.message()).find("all_reduce number"), std::string::npos);
      comm->Abort(absl::InternalError("too late"));
      EXPECT_EQ(comm->Barrier(*rank.stream).code(), absl::StatusCode::kAborted);
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    EXPECT_LT(milliseconds[milliseconds.size() / 2], 100);
    EXPECT_LT(milliseconds.back(), 2000);  // not a hang; the machine may be busy
  });
}

// More ranks than cores, one of them late: the others leave the cores alone.
TEST_P(CommunicatorConformance, WaitingCostsNoCpu) {
  Run(8, [](TestRank& rank) {
    auto comm = rank.Join(rank.Spec("dp"));
    ASSERT_NE(comm, nullptr);
    EXPECT_OK(comm->Barrier(*rank.stream));
    constexpr auto kLate = std::chrono::milliseconds(400);
    if (rank.index == 0) std::this_thread::sleep_for(kLate);  // is the load, not synchronization
    const auto cpu_ms = [] {
      rusage usage;
      getrusage(RUSAGE_THREAD, &usage);
      return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
             (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
    };
    const double before = cpu_ms();
    EXPECT_OK(comm->Barrier(*rank.stream));
    EXPECT_LT(cpu_ms() - before,
              40);  // a tenth of the wait; yields take 1 ms, checks 40 times 10 us
  });
}

TEST_P(CommunicatorConformance, TimeoutNamesWhoIsMissing) {
  Run(3, [](TestRank& rank) {
    GroupSpec spec = rank.Spec("dp");
    spec.timeout = absl::Seconds(2);  // also of the join
    auto comm = rank.Join(spec);
    ASSERT_NE(comm, nullptr);
    if (rank.index == 1) {
      // Its absence is the test; it stays until the others have given up.
      PendingOperation pending;
      EXPECT_FALSE(comm->pending(&pending));
      Owned tensor = Make(rank, DType::kFloat32, 1);
      EXPECT_FALSE(comm->Recv(tensor.tensor, 0, *rank.stream).ok());
      return;
    }
    const absl::Status status = comm->Barrier(*rank.stream);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    // Two ranks wait for rank 1; rank 1 waits for rank 0. Whoever is first names whom it misses.
    EXPECT_NE(std::string(status.message()).find("workers/w"), std::string::npos) << status;
  });
}

TEST_P(CommunicatorConformance, JoinTimeoutNamesWhoIsMissing) {
  Run(2, [](TestRank& rank) {
    if (rank.index == 1) return;
    GroupSpec spec = rank.Spec("dp");
    spec.timeout = absl::Milliseconds(200);
    auto comm = rank.transport->Join(spec);
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kDeadlineExceeded) << comm.status();
    EXPECT_NE(std::string(comm.status().message()).find("workers/w1 (group rank 1"),
              std::string::npos)
        << comm.status();
  });
}

TEST_P(CommunicatorConformance, AbortJoinsEndsAJoin) {
  Run(2, [](TestRank& rank) {
    if (rank.index == 1) return;
    std::atomic<bool> joined = false;
    std::thread control([&] {
      while (!joined) {
        rank.transport->AbortJoins("job", 7, absl::AbortedError("epoch 8 has begun"));
        std::this_thread::yield();
      }
    });
    auto comm = rank.transport->Join(rank.Spec("dp", 7));
    joined = true;
    control.join();
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kAborted) << comm.status();
    EXPECT_NE(std::string(comm.status().message()).find("epoch 8"), std::string::npos);
  });
}

// An abort that comes just before the join is not lost; a later epoch may form.
TEST_P(CommunicatorConformance, AbortJoinsEndsAJoinThatBeginsLater) {
  Run(2, [](TestRank& rank) {
    if (rank.index == 0) {
      rank.transport->AbortJoins("job", 7, absl::AbortedError("epoch 8 has begun"));
      for (const int64_t epoch : {6, 7}) {
        const absl::Status status = rank.transport->Join(rank.Spec("dp", epoch)).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      }
    }
    auto comm = rank.Join(rank.Spec("dp", 8));
    ASSERT_NE(comm, nullptr);
    EXPECT_OK(comm->Barrier(*rank.stream));
  });
}

TEST_P(CommunicatorConformance, JoinRefusesMalformedSpecs) {
  Run(2, [](TestRank& rank) {
    const auto code = [&](const GroupSpec& spec) {
      return rank.transport->Join(spec).status().code();
    };
    GroupSpec spec = rank.Spec("dp");
    spec.group_rank = 2;
    EXPECT_EQ(code(spec), absl::StatusCode::kInvalidArgument);
    spec = rank.Spec("dp");
    spec.group_rank = 1 - rank.index;  // somebody else's place
    EXPECT_EQ(code(spec), absl::StatusCode::kInvalidArgument);
    spec = rank.Spec("");
    EXPECT_EQ(code(spec), absl::StatusCode::kInvalidArgument);
    spec = rank.Spec("dp");
    spec.members[0].address = spec.members[1].address;
    EXPECT_EQ(code(spec), absl::StatusCode::kInvalidArgument);
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorConformance);

}  // namespace tessera
