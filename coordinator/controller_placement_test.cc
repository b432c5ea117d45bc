// Where a job's state is, rank by rank, while it runs, is suspended, and after restarts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/controller_testing.h"

namespace tessera {
namespace {

constexpr auto kRun = v1::CoordinatorMessage::kRun;

class ControllerPlacementTest : public ControllerTest {
 protected:
  // Of a rank that holds (global_rank + 1) * 8 bytes of each kind.
  void FormedWithShards(const TestWorker& worker) {
    v1::WorkerMessage message;
    const v1::RankAssignment run = worker.session->Last(kRun).run();
    v1::GroupsFormed& formed = *message.mutable_groups_formed();
    formed.set_job_uid(run.job_uid());
    formed.set_epoch(run.epoch());
    for (const char* kind : {"parameters", "gradients", "optimizer"}) {
      v1::ShardPlacement& shard = *formed.add_shards();
      shard.set_unit("head");
      shard.set_kind(kind);
      shard.set_size_bytes((run.coordinates().global_rank() + 1) * 8);
      shard.set_tier(std::string(kind) == "optimizer" ? "host" : "device");
    }
    controller_->HandleWorkerMessage(worker.id, message);
  }
  // "a" is RUNNING on w0 and w1, after step 4.
  void Run() {
    ASSERT_TRUE(Create(Request("a", 2)).ok());
    workers_ = {Attach("w0"), Attach("w1")};
    for (const TestWorker& worker : workers_) FormedWithShards(worker);
    Step(workers_[0], 4);
    uid_ = Job("a").uid();
  }
  // The coordinator's process is another one, the workers' are the same and go on.
  void RestartWhileItRuns() {
    Advance(absl::Seconds(1));  // journals the progress
    Restart();
    for (int rank = 0; rank < 2; ++rank) {
      const v1::CoordinatorMessage run = workers_[rank].session->Last(kRun);
      workers_[rank] = *TryAttach("w" + std::to_string(rank), workers_[rank].instance,
                                  RunningOf(workers_[rank]));
      workers_[rank].session->sent.push_back(run);
    }
  }
  void RestartAll() {
    Restart();
    for (int rank = 0; rank < 2; ++rank) {
      workers_[rank] = AttachAgain("w" + std::to_string(rank), {Saved(uid_, rank, {5})});
    }
  }
  void SuspendAfterStep5() {
    Suspend("a");
    for (const TestWorker& worker : workers_) Suspended(worker, 5);
    ASSERT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  }
  void ExpectLive() {
    const v1::RankDetail rank = GetPlacementOf("a").ranks(1);
    ASSERT_EQ(rank.shards_size(), 3);
    EXPECT_EQ(rank.shards(0).tier(), "device");
    EXPECT_EQ(rank.shards(2).tier(), "host");
    EXPECT_EQ(rank.shards(2).version(), 4);
    EXPECT_EQ(rank.shards(2).size_bytes(), 16);
  }
  void ExpectSaved() {
    for (int global_rank = 0; global_rank < 2; ++global_rank) {
      const v1::RankDetail rank = GetPlacementOf("a").ranks(global_rank);
      ASSERT_EQ(rank.shards_size(), 2);
      for (const v1::ShardPlacement& shard : rank.shards()) {
        EXPECT_NE(shard.kind(), "gradients");
        EXPECT_EQ(shard.tier(), "nvme");
        EXPECT_EQ(shard.version(), 5);
        EXPECT_EQ(shard.size_bytes(), (global_rank + 1) * 8);
      }
    }
  }

  std::vector<TestWorker> workers_;
  std::string uid_;
};

TEST_F(ControllerPlacementTest, ShowsWhereTheStateIs) {
  Run();
  ExpectLive();
  SuspendAfterStep5();
  ExpectSaved();
  Resume("a");
  EXPECT_TRUE(GetPlacementOf("a").ranks(1).shards().empty());  // its groups are not formed
  for (const TestWorker& worker : workers_) Ended(worker, absl::InternalError("x"));
  ASSERT_EQ(State("a"), v1::JOB_STATE_FAILED);
  EXPECT_TRUE(GetPlacementOf("a").ranks(1).shards().empty());
}

TEST_F(ControllerPlacementTest, OfASuspendedJobIsTheSameAfterARestart) {
  Run();
  SuspendAfterStep5();
  const std::string before = GetPlacementOf("a").ranks(1).shards(0).SerializeAsString();
  Restart();
  ExpectSaved();  // also before its workers are back
  EXPECT_EQ(GetPlacementOf("a").ranks(1).shards(0).SerializeAsString(), before);
  RestartAll();
  ExpectSaved();
}

TEST_F(ControllerPlacementTest, OfARunningJobIsTheSameAfterARestart) {
  Run();
  RestartWhileItRuns();
  ExpectLive();
  SuspendAfterStep5();
  ExpectSaved();
}

// The run that lost a worker had not said yet what it holds.
TEST_F(ControllerPlacementTest, OfAResumedJobThatCouldNotStartIsThatOfWhatIsSaved) {
  Run();
  SuspendAfterStep5();
  Resume("a");
  controller_->DetachWorker(workers_[1].id);
  Advance(absl::Milliseconds(500));
  Ended(workers_[0], absl::AbortedError("aborted"), {5});
  ASSERT_EQ(State("a"), v1::JOB_STATE_RECOVERING);
  ExpectSaved();
  RestartAll();
  ASSERT_EQ(State("a"), v1::JOB_STATE_ADMITTED);
}

TEST_F(ControllerPlacementTest, OfACancelledJobIsEmptyAlsoAfterARestart) {
  Run();
  SuspendAfterStep5();
  controller_->CancelJob("trainingJobs/a").IgnoreError();
  EXPECT_TRUE(GetPlacementOf("a").ranks(0).shards().empty());
  EXPECT_TRUE(store_->Get("shards/a").status().code() == absl::StatusCode::kNotFound);
  Restart();
  EXPECT_TRUE(GetPlacementOf("a").ranks(0).shards().empty());
}

// As an older coordinator leaves it.
TEST_F(ControllerPlacementTest, AJournalWithoutShardsIsReadable) {
  Run();
  SuspendAfterStep5();
  WriteBatch batch;
  batch.Delete("shards/a");
  ASSERT_TRUE(store_->Write(batch, Durability::kSynced).ok());
  RestartAll();
  EXPECT_EQ(State("a"), v1::JOB_STATE_SUSPENDED);
  EXPECT_TRUE(GetPlacementOf("a").ranks(0).shards().empty());
  Resume("a");
  EXPECT_EQ(workers_[0].session->Last(kRun).run().resume_step(), 5);
}

}  // namespace
}  // namespace tessera
