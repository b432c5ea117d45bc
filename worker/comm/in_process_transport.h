// Ranks as threads of one process, for tests: nothing to connect, the same schedule.
#ifndef TESSERA_WORKER_COMM_IN_PROCESS_TRANSPORT_H_
#define TESSERA_WORKER_COMM_IN_PROCESS_TRANSPORT_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/join.h"
#include "worker/comm/membership.h"
#include "worker/comm/transport.h"

namespace tessera {

// Where in-process transports meet. Thread-safe; outlives its transports and their communicators.
class InProcessHub {
 public:
  InProcessHub();
  ~InProcessHub();
  InProcessHub(const InProcessHub&) = delete;
  InProcessHub& operator=(const InProcessHub&) = delete;

  // A transport for one rank. Ranks may share a device, whose arena is one address space, or have
  // one each. The device outlives the transport.
  std::unique_ptr<Transport> CreateTransport(Device& device);

 private:
  friend class InProcessTransport;
  struct Meeting;

  absl::StatusOr<Membership> Meet(const GroupSpec& spec, Device& device,
                                  const std::string& address);
  void AbortJoins(absl::string_view job_uid, int64_t epoch, const absl::Status& reason,
                  const std::string& address);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_;  // by group; guarded by mutex_
  std::map<std::string, AbortedJoins> aborted_;               // by address; guarded by mutex_
  int next_transport_ = 0;                                    // guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_IN_PROCESS_TRANSPORT_H_
