// A job's spec as the trainer uses it: defaults resolved, unsupported values refused.
#ifndef TESSERA_WORKER_TRAINER_TRAINING_CONFIG_H_
#define TESSERA_WORKER_TRAINER_TRAINING_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/mesh.h"
#include "plan/model_sizes.h"
#include "plan/offload.h"
#include "plan/pipeline_schedule.h"
#include "proto/tessera/v1/assignment.pb.h"
#include "proto/tessera/v1/spec.pb.h"
#include "worker/model/model_config.h"
#include "worker/model/model_part.h"
#include "worker/model/transformer.h"
#include "worker/trainer/learning_rate.h"
#include "worker/trainer/loss_scaler.h"
#include "worker/zero/zero_optimizer.h"
#include "worker/zero/zero_options.h"

namespace tessera {

struct SampleOptions {
  std::string prompt;
  int64_t max_new_tokens = 0;
  double temperature = 1;
  int64_t top_k = 0;  // 0: all
  double top_p = 1;
  uint64_t seed = 0;
};

struct ExportOptions {
  std::string path;  // relative to the export root
  DType dtype = DType::kFloat32;
};

struct TrainingConfig {
  ModelConfig model;
  plan::MeshSize mesh;
  plan::Coordinates at;  // this rank
  ModelPart part;        // what this rank holds of the model
  plan::ScheduleOptions schedule;
  ContextParallelKind context_parallel = ContextParallelKind::kRing;
  bool check_replicated_gradients = false;
  int64_t trace_step = 0;                      // 0: none
  DType dtype = DType::kFloat32;               // of parameters, activations and gradients
  DType gradient_dtype = DType::kFloat32;      // dtype or fp32
  std::optional<LossScaleOptions> loss_scale;  // fp16 only
  RecomputePlan recompute;
  ZeroOptions zero;
  plan::OffloadOptions offload;
  ZeroOptimizerOptions optimizer;
  LearningRateSchedule learning_rate;
  int64_t steps = 0;
  int64_t sequence_length = 0;  // T
  std::vector<int32_t> ignore_target_ids;
  int64_t global_batch_size = 0;  // G
  int64_t micro_batches = 1;
  std::string initial_weights;  // path under the data root; empty: random, from init_seed
  uint64_t init_seed = 0;
  uint64_t data_seed = 0;
  int64_t evaluate_every_steps = 0;             // 0: never
  std::optional<int64_t> evaluation_sequences;  // absent: all
  std::optional<SampleOptions> sample;
  std::optional<ExportOptions> export_options;

  // Sequences of one rank in one step, and in one of its micro-batches; tokens of each on a rank.
  int64_t local_batch_size() const { return global_batch_size / mesh.dp; }
  int64_t micro_batch_size() const { return local_batch_size() / micro_batches; }
  int64_t local_sequence_length() const { return sequence_length / mesh.cp; }
  // Replicas gather weights together.
  bool takes_part_in_sample() const {
    return sample.has_value() && (at.dp_rank == 0 || zero.zero_stage == 3);
  }
  int zero_group_size() const { return mesh.dp * mesh.cp; }
  // Whether ranks hold different parts of the model's state.
  bool is_split() const { return mesh.pp * mesh.tp > 1 || zero.zero_stage > 0; }
};

// fp32 where unspecified.
DType DTypeOf(v1::Precision precision);

// Pure: the model part alone. REQUIRES: the rules of spec.proto hold.
ModelConfig MakeModelConfig(const v1::ModelSpec& spec);

// The same in the words of plan/.
plan::ModelSizes ModelSizesOf(const ModelConfig& model);

// Pure. INVALID_ARGUMENT: a field without which training would be nonsense (the coordinator has
// checked all rules of spec.proto). UNIMPLEMENTED: a value that this version cannot train. Messages
// start with the field's path.
absl::StatusOr<TrainingConfig> MakeTrainingConfig(const v1::TrainingJobSpec& spec,
                                                  const v1::MeshCoordinates& coordinates);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_TRAINING_CONFIG_H_
