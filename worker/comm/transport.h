// How a process reaches its peers: one Transport per process makes all its communicators.
#ifndef TESSERA_WORKER_COMM_TRANSPORT_H_
#define TESSERA_WORKER_COMM_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/comm/communicator.h"

namespace tessera {

// Thread-safe. Outlives its communicators; lives as long as the worker, over many jobs.
class Transport {
 public:
  virtual ~Transport() = default;

  // What a peer needs to reach this process. Opaque to everyone but the transport: the worker sends
  // it to the coordinator when it registers, the coordinator hands it to the members of a group.
  virtual std::string address() const = 0;
  // Host of this process, as far as mapped memory is concerned: equal strings share a host. Part of
  // the registration, so that placement can keep a tp group inside one host.
  virtual std::string host_id() const = 0;

  // Meets the other members of the group (all call it with the same spec but for group_rank) and
  // returns when all are connected. DEADLINE_EXCEEDED names the members that did not come within
  // spec.timeout; INVALID_ARGUMENT where specs or addresses are malformed; ABORTED after
  // AbortJoins. Nothing is held on failure. Blocks; several groups may be joined from several
  // threads.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Join(const GroupSpec& spec) = 0;
  // Ends every Join() of this job uid and epoch, or below, with `reason`: those in progress, and
  // those that begin after. Any thread.
  virtual void AbortJoins(absl::string_view job_uid, int64_t epoch, const absl::Status& reason) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_TRANSPORT_H_
