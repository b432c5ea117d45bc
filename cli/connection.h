// Where the coordinator is and how to reach it: flag, then environment, then context file, then
// default.
#ifndef TESSERA_CLI_CONNECTION_H_
#define TESSERA_CLI_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/rpc/credentials.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace tessera {

struct ConnectionOptions {
  std::string endpoint;  // TESSERA_ENDPOINT, "endpoint", 127.0.0.1:7433
  std::string ca;        // TESSERA_CACERT, "cacert"
  std::string cert;      // TESSERA_CERT, "cert"
  std::string key;       // TESSERA_KEY, "key"
  std::string context;   // TESSERA_CONFIG, ~/.config/tessera/config.yaml
};

// Fills what is empty. INVALID_ARGUMENT for a context file that cannot be parsed or has an unknown
// key; a context file that is not there is no error, unless it was named.
absl::StatusOr<ConnectionOptions> ResolveConnection(ConnectionOptions given);

// INVALID_ARGUMENT for TLS files that do not serve. Does not connect yet.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const ConnectionOptions& options);

// Every unary call gets a deadline.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace tessera

#endif  // TESSERA_CLI_CONNECTION_H_
