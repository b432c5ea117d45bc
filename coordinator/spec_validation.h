// Whether a job's spec makes sense, and whether this version can run it.
#ifndef TESSERA_COORDINATOR_SPEC_VALIDATION_H_
#define TESSERA_COORDINATOR_SPEC_VALIDATION_H_

#include "absl/status/status.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// INVALID_ARGUMENT: the first field, in the order of the message, whose value breaks a rule of
// spec.proto. UNIMPLEMENTED: the spec is valid, but this version cannot do what a field says.
// Fields are named "spec.mesh.dp". Pure; files are checked by the workers that have them.
absl::Status ValidateSpec(const v1::TrainingJobSpec& spec);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_SPEC_VALIDATION_H_
