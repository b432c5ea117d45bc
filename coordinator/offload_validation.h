// Rules of spec.offload: what may leave the device, and where to.
#ifndef TESSERA_COORDINATOR_OFFLOAD_VALIDATION_H_
#define TESSERA_COORDINATOR_OFFLOAD_VALIDATION_H_

#include "coordinator/spec_check.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// INVALID_ARGUMENT: a field breaks its rule, or would have no effect.
void CheckOffload(const v1::TrainingJobSpec& spec, SpecCheck& check);
// UNIMPLEMENTED: what a later version will do.
void CheckOffloadSupported(const v1::TrainingJobSpec& spec, SpecCheck& check);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_OFFLOAD_VALIDATION_H_
