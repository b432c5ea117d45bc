// absl::Status <-> google.rpc.Status <-> grpc::Status. The only place where one becomes another.
#ifndef TESSERA_PROTO_RPC_STATUS_H_
#define TESSERA_PROTO_RPC_STATUS_H_

#include "absl/status/status.h"
#include "proto/google/rpc/status.pb.h"

namespace grpc {
class Status;
}

namespace tessera {

// Reason and field become ErrorInfo and BadRequest details.
google::rpc::Status ToProto(const absl::Status& status);
// The inverse; unknown details are dropped, a code outside the canonical ones is UNKNOWN.
absl::Status FromProto(const google::rpc::Status& proto);

// Details go into grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tessera

#endif  // TESSERA_PROTO_RPC_STATUS_H_
