#include "worker/trainer/trainer.h"

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/trainer/data_parallel_trainer.h"
#include "worker/trainer/training_config.h"

namespace tessera {
namespace {

absl::Status CheckData(const TrainingConfig& config, const JobData& data) {
  const int64_t least = config.sequence_length + 1;
  if (data.train == nullptr || data.train->num_tokens() < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.data.path: ", data.train == nullptr ? 0 : data.train->num_tokens(),
                     " tokens: must be at least spec.data.sequence_length + 1 (", least, ")"));
  }
  if (config.evaluate_every_steps > 0 &&
      (data.validation == nullptr || data.validation->num_tokens() < least)) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.data.validation_path: ",
                     data.validation == nullptr ? 0 : data.validation->num_tokens(),
                     " tokens: must be at least spec.data.sequence_length + 1 (", least, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const TrainingConfig& config, const MeshGroups& groups) {
  for (const Communicator* group : {groups.dp, groups.cp, groups.pp, groups.tp, groups.zero}) {
    if (group == nullptr) return absl::InvalidArgumentError("groups: every axis must have one");
  }
  if (groups.zero->size() != config.dp_size || groups.zero->group_rank() != config.dp_rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups: zero group has ", groups.zero->size(), " members and this rank is ",
                     groups.zero->group_rank(), "; spec.mesh.dp is ", config.dp_size,
                     " and dp_rank ", config.dp_rank));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(
    const v1::TrainingJobSpec& spec, const v1::MeshCoordinates& coordinates,
    const MeshGroups& groups, const JobData& data, const WeightReader* weights, Device& device) {
  TESSERA_ASSIGN_OR_RETURN(const TrainingConfig config, MakeTrainingConfig(spec, coordinates));
  TESSERA_RETURN_IF_ERROR(CheckGroups(config, groups));
  TESSERA_RETURN_IF_ERROR(CheckData(config, data));
  return DataParallelTrainer::Create(config, groups, data, weights, device);
}

}  // namespace tessera
