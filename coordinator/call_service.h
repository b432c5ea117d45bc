// What the gRPC adapters share: the caller's identities, and unary replies.
#ifndef TESSERA_COORDINATOR_CALL_SERVICE_H_
#define TESSERA_COORDINATOR_CALL_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/rpc/status.h"

namespace tessera {

// Names in the caller's certificate; empty without one.
inline std::vector<std::string> IdentitiesOf(const grpc::CallbackServerContext& context) {
  std::vector<std::string> identities;
  for (const grpc::string_ref& identity : context.auth_context()->GetPeerIdentity()) {
    identities.emplace_back(identity.data(), identity.size());
  }
  for (const grpc::string_ref& name :
       context.auth_context()->FindPropertyValues("x509_common_name")) {
    identities.emplace_back(name.data(), name.size());
  }
  return identities;
}

// Finishes a unary call with a value or an error.
template <typename Message>
grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context,
                                absl::StatusOr<Message> result, Message* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status = result.status();
  if (status.ok()) *response = *std::move(result);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_CALL_SERVICE_H_
