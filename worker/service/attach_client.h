// Keeps the worker attached to its coordinator: registers, sends heartbeats and reports, hands on
// what the coordinator says, and comes back when the stream ends.
#ifndef TESSERA_WORKER_SERVICE_ATTACH_CLIENT_H_
#define TESSERA_WORKER_SERVICE_ATTACH_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/daemon/log.h"
#include "proto/rpc/credentials.h"
#include "proto/tessera/v1/attach.pb.h"

namespace tessera {

struct AttachClientOptions {
  std::string coordinator;  // "host:port"
  TlsFiles tls;
};

// What the client asks and tells. Called from the client's threads, which hold no lock then; must
// not block for long.
struct AttachCallbacks {
  // The first message of a new stream, and what follows it at once.
  std::function<v1::RegisterWorker()> make_register;
  std::function<std::vector<v1::WorkerMessage>()> make_backlog;
  std::function<v1::Heartbeat()> make_heartbeat;
  std::function<void(const v1::CoordinatorMessage&)> handle;
};

// Thread-safe.
class AttachClient {
 public:
  // Does not connect yet. INVALID_ARGUMENT for TLS files that do not serve. log outlives the
  // client.
  static absl::StatusOr<std::unique_ptr<AttachClient>> Create(const AttachClientOptions& options,
                                                              Logger* log);
  virtual ~AttachClient() = default;
  // Attaches, again and again, with a back-off of up to two seconds, until Stop().
  virtual void Start(AttachCallbacks callbacks) = 0;
  // Sends if attached, else drops: what must not be lost is in the backlog. Never blocks.
  virtual void Send(const v1::WorkerMessage& message) = 0;
  // Writes what is queued, ends the stream, joins all threads. No callback runs afterwards.
  virtual void Stop() = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_SERVICE_ATTACH_CLIENT_H_
