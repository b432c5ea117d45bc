// What works: arithmetic, movement, order, several groups, counters.
#include "worker/comm/conformance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/comm/conformance_tensors.h"
#include "worker/comm/reference.h"
#include "worker/comm/schedule.h"

namespace tessera {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64};
constexpr int kRanks[] = {1, 2, 3, 4, 5, 8};

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
            OwnedTensor tensor = Make(rank, dtype, inputs[rank.index]);
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
      OwnedTensor tensor = Make(rank, DType::kFloat32, inputs[rank.index]);
      OwnedTensor scattered = Make(rank, DType::kFloat32, block);
      EXPECT_OK(comm->ReduceScatter(tensor.tensor, scattered.tensor, ReduceOp::kSum, *rank.stream));
      EXPECT_OK(comm->AllReduce(tensor.tensor, ReduceOp::kSum, *rank.stream));
      EXPECT_TRUE(Read(rank, tensor.tensor) == sum);
      EXPECT_TRUE(Read(rank, scattered.tensor) ==
                  Part(sum, DType::kFloat32, {block * rank.index, block}));
      OwnedTensor gathered = Make(rank, DType::kFloat32, block * rank.size);
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
          OwnedTensor tensor = Make(rank, dtype, inputs[rank.index]);
          const Tensor own = tensor.tensor.Slice(block * rank.index, block);
          // In place: the output is the own block of the input, then the other way round.
          EXPECT_OK(comm->ReduceScatter(tensor.tensor, own, ReduceOp::kSum, *rank.stream));
          EXPECT_OK(comm->AllGather(own, tensor.tensor, *rank.stream));
          OwnedTensor reduced = Make(rank, dtype, inputs[rank.index]);
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
          OwnedTensor input = Make(rank, dtype, inputs[rank.index]);
          OwnedTensor output = Make(rank, dtype, block * rank.size);
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
        OwnedTensor out = Make(rank, DType::kFloat32, TestData(DType::kFloat32, count, rank.index));
        OwnedTensor in = Make(rank, DType::kFloat32, count);
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
    std::vector<OwnedTensor> tensors;
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
    std::vector<OwnedTensor> tensors;
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
      OwnedTensor tensor;
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
      OwnedTensor tensor =
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
      OwnedTensor tensor = Make(rank, DType::kInt64, 1);
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
    OwnedTensor small = Make(rank, DType::kFloat32, 8), large = Make(rank, DType::kFloat32, 16);
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

}  // namespace tessera
