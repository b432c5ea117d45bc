// What every transport checks and says when a group is joined.
#ifndef TESSERA_WORKER_COMM_JOIN_H_
#define TESSERA_WORKER_COMM_JOIN_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/comm/communicator.h"

namespace tessera {

// INVALID_ARGUMENT where the spec cannot be a group that the transport at `own_address` joins.
absl::Status CheckSpec(const GroupSpec& spec, const std::string& own_address);

// Identifies the group across processes: job uid, epoch and name.
std::string GroupKey(const GroupSpec& spec);

// The same status, with the group and this member named.
absl::Status JoinError(const GroupSpec& spec, const absl::Status& why);

// Which joins Transport::AbortJoins has ended, so that one that was about to begin ends too. Keeps
// the newest few jobs: a worker runs one at a time. Not thread-safe.
class AbortedJoins {
 public:
  void Add(absl::string_view job_uid, int64_t epoch, const absl::Status& reason);
  // The reason, where the group's job was aborted in its epoch or a later one; else OK.
  absl::Status Check(const GroupSpec& spec) const;

 private:
  static constexpr size_t kKept = 16;
  struct Aborted {
    std::string job_uid;
    int64_t epoch;
    absl::Status reason;
  };
  std::deque<Aborted> newest_last_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_JOIN_H_
