// Where a test build plants an error that `tessera verify` must find, or that a job must survive.
// In every other build these do nothing: weak definitions, which
// //worker/trainer:planted_error_from_env replaces at link time.
#ifndef TESSERA_WORKER_TRAINER_PLANTED_ERROR_H_
#define TESSERA_WORKER_TRAINER_PLANTED_ERROR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "plan/mesh.h"
#include "worker/comm/communicator.h"
#include "worker/zero/zero_store.h"

namespace tessera {

// The tp group that a model gets for `group`; lives as long as the process.
Communicator& PlantInGroup(Communicator& group);
// Positions of a cp_rank's tokens.
void PlantInPositions(const plan::Coordinates& at, std::vector<int32_t>& positions);
// A unit's whole gradients, before they are reduced over the zero group.
absl::Status PlantInGradients(const plan::Coordinates& at, int unit, ZeroStore& store,
                              Stream& stream);

// Memory that a step takes and keeps in `held`, which goes with the trainer.
absl::Status PlantInMemory(int64_t step, Device& device, std::vector<DeviceBuffer>& held);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_PLANTED_ERROR_H_
