// The final weights of the last jobs, as Hugging Face directories in the worker's state folder.
#ifndef TESSERA_WORKER_SERVICE_KEPT_WEIGHTS_H_
#define TESSERA_WORKER_SERVICE_KEPT_WEIGHTS_H_

#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// Thread-safe. One process per folder. The folder is made when something is kept.
class KeptWeights {
 public:
  // Keeps the last `count` jobs' weights; 0: none. Removes what an earlier process left half
  // written, and what it has kept beyond count.
  KeptWeights(std::string folder, int count);

  // Lets `write` fill a new folder, which then replaces what was kept of this job, and removes the
  // oldest beyond count. FAILED_PRECONDITION where none are kept; errors of write and of the system
  // pass through, and nothing half written stays.
  absl::Status Keep(const std::string& job_uid,
                    const std::function<absl::Status(const std::string& folder)>& write);
  // The job's folder. It may be removed at any time; files that are open or mapped stay readable.
  // NOT_FOUND says how many jobs' weights are kept.
  absl::StatusOr<std::string> Find(const std::string& job_uid) const;

 private:
  void RemoveOldest();

  const std::string folder_;
  const int count_;
  std::mutex mutex_;  // held while a job's weights are written
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_KEPT_WEIGHTS_H_
