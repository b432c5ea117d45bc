// The coordinator as a gRPC server: services, health, reflection, the clock that ticks.
#ifndef TESSERA_COORDINATOR_COORDINATOR_SERVER_H_
#define TESSERA_COORDINATOR_COORDINATOR_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/authorization.h"
#include "coordinator/controller.h"
#include "proto/rpc/credentials.h"

namespace tessera {

struct CoordinatorServerOptions {
  std::string listen;  // "127.0.0.1:0" chooses a port
  TlsFiles tls;
  // After this, calls that still run are cut off.
  absl::Duration drain = absl::Seconds(3);
};

// Serves from Start() on; Stop() (or the destructor) drains. One thread calls both.
class CoordinatorServer {
 public:
  // UNAVAILABLE when the address cannot be bound. controller and authorization outlive the server.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      const CoordinatorServerOptions& options, Controller* controller,
      const Authorization* authorization);
  virtual ~CoordinatorServer() = default;
  // "127.0.0.1:7433", with the port that was bound.
  virtual const std::string& address() const = 0;
  // NOT_SERVING, then the workers' streams end, then a graceful and a forced shutdown.
  virtual void Stop() = 0;
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_COORDINATOR_SERVER_H_
