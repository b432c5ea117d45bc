// The rules of generation.proto that need no model.
#ifndef TESSERA_COORDINATOR_GENERATE_REQUEST_H_
#define TESSERA_COORDINATOR_GENERATE_REQUEST_H_

#include "absl/status/status.h"
#include "proto/tessera/v1/generation.pb.h"

namespace tessera {

// INVALID_ARGUMENT with the first field that breaks its rule. What needs the model or its files
// (lengths, ids, paths) is the worker's to check.
absl::Status ValidateGenerateRequest(const v1::GenerateRequest& request);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_GENERATE_REQUEST_H_
