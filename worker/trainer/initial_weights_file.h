// The weights that a job starts from: spec.initial_weights.
#ifndef TESSERA_WORKER_TRAINER_INITIAL_WEIGHTS_FILE_H_
#define TESSERA_WORKER_TRAINER_INITIAL_WEIGHTS_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/tessera/v1/spec.pb.h"
#include "worker/checkpoint/weight_reader.h"

namespace tessera {

// Null where the spec names none. INVALID_ARGUMENT with the field's path: a path that leaves the
// data root, a file that is not what it should be, or weights of another model than spec.model,
// naming the first field that differs. Other errors of OpenWeights pass through.
absl::StatusOr<std::unique_ptr<WeightReader>> OpenInitialWeights(const v1::TrainingJobSpec& spec,
                                                                 const std::string& data_root);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_INITIAL_WEIGHTS_FILE_H_
