#include "coordinator/active_job.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

google::protobuf::RepeatedPtrField<v1::RankPlacement> Ranks(int count) {
  google::protobuf::RepeatedPtrField<v1::RankPlacement> placement;
  for (int rank = 0; rank < count; ++rank) {
    v1::RankPlacement& place = *placement.Add();
    place.set_worker("workers/w" + std::to_string(rank));
    place.mutable_coordinates()->set_global_rank(rank);
  }
  return placement;
}

v1::PendingCollective AllReduce() {
  v1::PendingCollective pending;
  pending.set_group("zero[pp=0,tp=0]");
  pending.set_operation("all_reduce");
  pending.set_sequence(7);
  pending.set_size_bytes(1024);
  pending.set_step(3);
  return pending;
}

constexpr absl::Duration kNow = absl::Seconds(100);

TEST(ActiveJob, SucceedsWhenAllRanksHaveEndedWell) {
  ActiveJob job("uid", 1, Ranks(2), true);
  job.Ended(*job.FindWorker("workers/w0"), absl::OkStatus(), kNow);
  EXPECT_FALSE(job.Resolve(kNow).has_value());
  job.Ended(*job.FindWorker("workers/w1"), absl::OkStatus(), kNow);
  EXPECT_EQ(job.Resolve(kNow)->state, v1::JOB_STATE_SUCCEEDED);
}

TEST(ActiveJob, LossNamesWorkerRankGroupAndCollective) {
  ActiveJob job("uid", 1, Ranks(3), true);
  job.Lost(*job.FindWorker("workers/w1"), "its stream ended", kNow);
  EXPECT_TRUE(job.stopping());
  for (const char* name : {"workers/w0", "workers/w2"}) {
    ActiveJob::Rank& rank = *job.FindWorker(name);
    rank.pending = AllReduce();
    job.Ended(rank, absl::AbortedError("aborted"), kNow);
  }
  const JobOutcome outcome = *job.Resolve(kNow);
  EXPECT_EQ(outcome.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(outcome.reason, "WORKER_LOST");
  EXPECT_EQ(outcome.message,
            "workers/w1 (global_rank 1) was lost: its stream ended; group zero[pp=0,tp=0], "
            "all_reduce #7 of 1024 bytes in step 3 was pending on workers/w0 (global_rank 0), "
            "workers/w2 (global_rank 2)");
  EXPECT_EQ(ReasonOf(outcome.error), "WORKER_LOST");
}

// Others may be waiting for those who wait for the lost one.
TEST(ActiveJob, LossNamesAGroupOfTheLostRank) {
  google::protobuf::RepeatedPtrField<v1::RankPlacement> placement = Ranks(3);
  for (int rank = 0; rank < 3; ++rank) placement[rank].mutable_coordinates()->set_pp_rank(rank);
  ActiveJob job("uid", 1, placement, true);
  job.Lost(*job.FindWorker("workers/w2"), "gone", kNow);
  ActiveJob::Rank& first = *job.FindWorker("workers/w0");
  first.pending = AllReduce();  // of stage 0
  job.Ended(first, absl::AbortedError("aborted"), kNow);
  ActiveJob::Rank& second = *job.FindWorker("workers/w1");
  second.pending = AllReduce();
  second.pending->set_group("pp[dp=0,cp=0,tp=0]");
  second.pending->set_operation("recv");
  job.Ended(second, absl::AbortedError("aborted"), kNow);
  EXPECT_EQ(job.Resolve(kNow)->message,
            "workers/w2 (global_rank 2) was lost: gone; group pp[dp=0,cp=0,tp=0], recv #7 of 1024 "
            "bytes in step 3 was pending on workers/w1 (global_rank 1)");
}

TEST(ActiveJob, ACauseIsPreferredToItsEchoes) {
  ActiveJob job("uid", 1, Ranks(3), true);
  job.Ended(*job.FindWorker("workers/w0"), absl::UnavailableError("peer gone"), kNow);
  job.Ended(*job.FindWorker("workers/w1"), absl::ResourceExhaustedError("device memory"), kNow);
  job.Ended(*job.FindWorker("workers/w2"), absl::AbortedError("aborted"), kNow);
  const JobOutcome outcome = *job.Resolve(kNow);
  EXPECT_EQ(outcome.reason, "RANK_FAILED");
  EXPECT_EQ(outcome.error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(outcome.message.find("workers/w1 (global_rank 1) failed: device memory"),
            std::string::npos);
}

TEST(ActiveJob, FieldOfAFailureIsKept) {
  ActiveJob job("uid", 1, Ranks(1), true);
  job.Ended(*job.FindWorker("workers/w0"), InvalidField("spec.data.path", "x", "is empty"), kNow);
  EXPECT_EQ(FieldOf(job.Resolve(kNow)->error), "spec.data.path");
}

TEST(ActiveJob, SilentSurvivorsAreNamedAfterTheSettleTime) {
  ActiveJob job("uid", 1, Ranks(2), true);
  job.Lost(*job.FindWorker("workers/w0"), "gone", kNow);
  EXPECT_FALSE(job.Resolve(kNow + ActiveJob::kFailureSettle / 2).has_value());
  const JobOutcome outcome = *job.Resolve(kNow + ActiveJob::kFailureSettle);
  EXPECT_NE(outcome.message.find("not yet stopped: workers/w1 (global_rank 1)"), std::string::npos);
}

TEST(ActiveJob, CancelWinsOnlyBeforeAFailure) {
  ActiveJob cancelled("uid", 1, Ranks(1), true);
  cancelled.Cancel(kNow);
  cancelled.Ended(*cancelled.FindWorker("workers/w0"), absl::AbortedError("x"), kNow);
  EXPECT_EQ(cancelled.Resolve(kNow)->state, v1::JOB_STATE_CANCELLED);

  ActiveJob failed("uid", 1, Ranks(1), true);
  failed.Ended(*failed.FindWorker("workers/w0"), absl::InternalError("x"), kNow);
  failed.Cancel(kNow);
  EXPECT_EQ(failed.Resolve(kNow)->state, v1::JOB_STATE_FAILED);
}

TEST(ActiveJob, AJobThatWasDoneBeforeItsCancelSucceeds) {
  ActiveJob job("uid", 1, Ranks(1), true);
  job.Ended(*job.FindWorker("workers/w0"), absl::OkStatus(), kNow);
  job.Cancel(kNow);
  EXPECT_EQ(job.Resolve(kNow)->state, v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace tessera
