// One Generate call: hands on what a worker generates, at its reader's pace.
#ifndef TESSERA_COORDINATOR_GENERATE_SERVICE_H_
#define TESSERA_COORDINATOR_GENERATE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "coordinator/controller.h"
#include "proto/tessera/v1/generation.pb.h"

namespace tessera {

// Owned by gRPC; deletes itself. allowed: an error ends the call at once. What a slow reader has
// not yet taken is held, at most a model's context of tokens.
grpc::ServerWriteReactor<v1::GenerateResponse>* NewGenerateReactor(
    Controller* controller, const absl::Status& allowed, const v1::GenerateRequest& request);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_GENERATE_SERVICE_H_
