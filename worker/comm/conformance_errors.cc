// What goes wrong: arguments, members that disagree, aborts, members that stay away.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/comm/conformance.h"
#include "worker/comm/conformance_tensors.h"

namespace tessera {

TEST_P(CommunicatorConformance, RefusesWhatCannotBe) {
  Run(2, [](TestRank& rank) {
    auto comm = rank.Join(rank.Spec("dp"));
    ASSERT_NE(comm, nullptr);
    OwnedTensor a = Make(rank, DType::kFloat32, 8), b = Make(rank, DType::kFloat32, 8);
    OwnedTensor words = Make(rank, DType::kInt32, 8);
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
      OwnedTensor tensor = Make(rank, DType::kFloat32, 8);
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
    OwnedTensor tensor = Make(rank, DType::kFloat32, rank.index == 0 ? 8 : 7);
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
      OwnedTensor tensor = Make(rank, DType::kFloat32, 1000);
      if (rank.index == 2) {
        // Never calls the collective: the others wait until its control thread aborts.
        std::thread control([&] { comm->Abort(absl::AbortedError("drained")); });
        control.join();
      }
      // Some more under way, which also end: waited for last.
      std::vector<std::unique_ptr<CollectiveHandle>> others;
      OwnedTensor received = Make(rank, DType::kFloat32, 1000);
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
      OwnedTensor tensor = Make(rank, DType::kFloat32, 1);
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

}  // namespace tessera
