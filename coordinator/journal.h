// The coordinator's memory: jobs, request ids and the revision counter, in a key-value store.
//
// Keys: "header" (JournalHeader), "job/{job}" (TrainingJob), "shards/{job}" (JobShards),
// "request/{request_id}" (RequestRecord).
#ifndef TESSERA_COORDINATOR_JOURNAL_H_
#define TESSERA_COORDINATOR_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/tessera/v1/journal.pb.h"
#include "proto/tessera/v1/training_job.pb.h"
#include "storage/key_value_store.h"

namespace tessera {

// Not thread-safe: guarded by its owner.
class Journal {
 public:
  // The store outlives the journal. FAILED_PRECONDITION for another format version; DATA_LOSS for a
  // record that cannot be parsed.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(KeyValueStore* store);

  absl::StatusOr<std::vector<v1::TrainingJob>> LoadJobs() const;
  // NOT_FOUND for an unknown id.
  absl::StatusOr<v1::RequestRecord> FindRequest(const std::string& request_id) const;

  // A new job and the request that made it (request_id may be empty), synced.
  absl::Status Create(const v1::TrainingJob& job, const std::string& request_id,
                      const v1::RequestRecord& record);
  // A transition: synced before it is acted on. Progress: buffered.
  absl::Status Update(const v1::TrainingJob& job, Durability durability);

  // An empty one where none is known.
  absl::StatusOr<v1::JobShards> LoadShards(const v1::TrainingJob& job) const;
  // Buffered: as durable as the transition that follows. An empty one is removed.
  absl::Status UpdateShards(const v1::TrainingJob& job, const v1::JobShards& shards);

  // Grows by one each call, and never falls, also over restarts.
  absl::StatusOr<int64_t> NextRevision();
  int64_t last_revision() const { return next_revision_ - 1; }

 private:
  explicit Journal(KeyValueStore* store) : store_(store) {}

  KeyValueStore* const store_;
  int64_t next_revision_ = 1;
  int64_t revision_bound_ = 1;  // as in the header
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_JOURNAL_H_
