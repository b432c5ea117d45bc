#include "coordinator/journal.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Journal, JobsAndRequestsComeBack) {
  auto store = NewMemoryKeyValueStore();
  v1::TrainingJob job;
  job.set_name("trainingJobs/a");
  v1::RequestRecord record;
  record.set_request("bytes");
  {
    auto journal = *Journal::Open(store.get());
    ASSERT_TRUE(journal->Create(job, "request-1", record).ok());
    job.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
    ASSERT_TRUE(journal->Update(job, Durability::kSynced).ok());
  }
  auto journal = *Journal::Open(store.get());
  const std::vector<v1::TrainingJob> jobs = *journal->LoadJobs();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].status().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(journal->FindRequest("request-1")->request(), "bytes");
  EXPECT_EQ(journal->FindRequest("request-2").status().code(), absl::StatusCode::kNotFound);
}

TEST(Journal, ShardsComeBackUntilTheyAreEmpty) {
  auto store = NewMemoryKeyValueStore();
  v1::TrainingJob job;
  job.set_name("trainingJobs/a");
  v1::JobShards shards;
  shards.add_ranks()->add_shards()->set_size_bytes(7);
  auto journal = *Journal::Open(store.get());
  EXPECT_TRUE(journal->LoadShards(job)->ranks().empty());
  ASSERT_TRUE(journal->UpdateShards(job, shards).ok());
  journal = *Journal::Open(store.get());
  EXPECT_EQ(journal->LoadShards(job)->ranks(0).shards(0).size_bytes(), 7);
  EXPECT_TRUE(journal->LoadJobs()->empty());
  ASSERT_TRUE(journal->UpdateShards(job, {}).ok());
  EXPECT_TRUE(journal->LoadShards(job)->ranks().empty());
}

TEST(Journal, RevisionsGrowOverRestarts) {
  auto store = NewMemoryKeyValueStore();
  int64_t last = 0;
  for (int restart = 0; restart < 3; ++restart) {
    auto journal = *Journal::Open(store.get());
    EXPECT_GE(journal->last_revision(), last);
    for (int i = 0; i < 5; ++i) {
      const int64_t next = *journal->NextRevision();
      EXPECT_GT(next, last);
      last = next;
    }
  }
}

TEST(Journal, CorruptRecordsAndOtherFormatsAreNamed) {
  auto store = NewMemoryKeyValueStore();
  WriteBatch batch;
  batch.Put("job/x", "\xff\xff\xff");
  ASSERT_TRUE(store->Write(batch, Durability::kSynced).ok());
  const absl::Status status = (*Journal::Open(store.get()))->LoadJobs().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("job/x"), absl::string_view::npos);
  batch.Put("shards/x", "\xff\xff\xff");
  ASSERT_TRUE(store->Write(batch, Durability::kSynced).ok());
  v1::TrainingJob job;
  job.set_name("trainingJobs/x");
  EXPECT_EQ((*Journal::Open(store.get()))->LoadShards(job).status().message(),
            "journal: shards/x is corrupt");

  v1::JournalHeader header;
  header.set_format_version(2);
  WriteBatch other;
  other.Put("header", header.SerializeAsString());
  ASSERT_TRUE(store->Write(other, Durability::kSynced).ok());
  EXPECT_EQ(Journal::Open(store.get()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tessera
