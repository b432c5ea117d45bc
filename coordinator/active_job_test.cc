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

ActiveJob::Rank& RankOf(ActiveJob& job, int rank) {
  return *job.FindWorker("workers/w" + std::to_string(rank));
}

TEST(ActiveJob, IsSuspendedWhenAllRanksAreAfterTheSameStep) {
  ActiveJob job("uid", 1, Ranks(2), true);
  job.Ended(RankOf(job, 0), absl::OkStatus(), kNow, 5);
  EXPECT_FALSE(job.Resolve(kNow).has_value());
  job.Ended(RankOf(job, 1), absl::OkStatus(), kNow, 5);
  const JobOutcome outcome = *job.Resolve(kNow);
  EXPECT_EQ(outcome.state, v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(outcome.reason, "SUSPENDED");
  EXPECT_EQ(outcome.suspended_step, 5);
  EXPECT_TRUE(outcome.error.ok());
}

TEST(ActiveJob, RanksThatDisagreeAboutTheStepAreAnError) {
  ActiveJob steps("uid", 1, Ranks(2), true);
  steps.Ended(RankOf(steps, 0), absl::OkStatus(), kNow, 5);
  steps.Ended(RankOf(steps, 1), absl::OkStatus(), kNow, 6);
  const JobOutcome outcome = *steps.Resolve(kNow);
  EXPECT_EQ(outcome.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(outcome.error.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(outcome.message,
            "the ranks were suspended at different steps: workers/w0 (global_rank 0) after step 5, "
            "workers/w1 (global_rank 1) after step 6");

  ActiveJob finished("uid", 1, Ranks(2), true);
  finished.Ended(RankOf(finished, 0), absl::OkStatus(), kNow, 5);
  finished.Ended(RankOf(finished, 1), absl::OkStatus(), kNow);
  EXPECT_EQ(finished.Resolve(kNow)->error.code(), absl::StatusCode::kInternal);
}

TEST(ActiveJob, ACancelledJobIsNotSuspended) {
  ActiveJob job("uid", 1, Ranks(1), true);
  job.Cancel(kNow);
  job.Ended(RankOf(job, 0), absl::OkStatus(), kNow, 5);
  EXPECT_EQ(job.Resolve(kNow)->state, v1::JOB_STATE_CANCELLED);
}

// A rank tells of its suspension only when all ranks have committed.
TEST(ActiveJob, ARankThatIsLostAfterAllHaveCommittedChangesNothing) {
  ActiveJob job("uid", 1, Ranks(3), true);
  job.Ended(RankOf(job, 0), absl::OkStatus(), kNow, 5);
  job.Lost(RankOf(job, 1), "gone", kNow);
  job.Ended(RankOf(job, 2), absl::AbortedError("aborted"), kNow);
  const JobOutcome outcome = *job.Resolve(kNow);
  EXPECT_EQ(outcome.state, v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(outcome.suspended_step, 5);
  EXPECT_NE(outcome.message.find("workers/w1 (global_rank 1) was lost: gone"), std::string::npos);

  ActiveJob failed("uid", 1, Ranks(3), true);
  failed.Ended(RankOf(failed, 0), absl::OkStatus(), kNow, 5);
  failed.Lost(RankOf(failed, 1), "gone", kNow);
  failed.Ended(RankOf(failed, 2), absl::InternalError("a fault"), kNow);
  EXPECT_EQ(failed.Resolve(kNow)->state, v1::JOB_STATE_FAILED);
}

TEST(ActiveJob, ARecoverableJobOutlivesItsWorkersAndTheirDisks) {
  struct Case {
    const char* name;
    bool is_recoverable, is_lost;
    absl::Status ended;  // of the rank, where it is not lost
    v1::JobState state;
    const char* reason;
  };
  const absl::Status full = WithReason(absl::UnavailableError("the disk is full"), kTierFailed);
  const Case cases[] = {
      {"lost", true, true, {}, v1::JOB_STATE_RECOVERING, "WORKER_LOST"},
      {"lost_for_good", false, true, {}, v1::JOB_STATE_FAILED, "WORKER_LOST"},
      {"tier", true, false, full, v1::JOB_STATE_SUSPENDED, "TIER_FAILED"},
      {"tier_without_state", false, false, full, v1::JOB_STATE_FAILED, "RANK_FAILED"},
      {"own_fault", true, false, absl::InternalError("x"), v1::JOB_STATE_FAILED, "RANK_FAILED"},
  };
  for (const Case& c : cases) {
    ActiveJob job("uid", 1, Ranks(2), true, c.is_recoverable);
    if (c.is_lost) {
      job.Lost(RankOf(job, 1), "gone", kNow);
    } else {
      job.Ended(RankOf(job, 1), c.ended, kNow);
    }
    job.Ended(RankOf(job, 0), absl::UnavailableError("peer gone"), kNow);  // an echo, also first
    const JobOutcome outcome = *job.Resolve(kNow);
    EXPECT_EQ(outcome.state, c.state) << c.name;
    EXPECT_EQ(outcome.reason, c.reason) << c.name;
    EXPECT_EQ(outcome.error.ok(), c.state != v1::JOB_STATE_FAILED) << c.name;
    EXPECT_NE(outcome.message.find("workers/w1 (global_rank 1)"), std::string::npos) << c.name;
  }
}

}  // namespace
}  // namespace tessera
