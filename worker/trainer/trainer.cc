#include "worker/trainer/trainer.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/trainer/mesh_trainer.h"
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
  const std::tuple<plan::GroupAxis, const Communicator*> axes[] = {
      {plan::GroupAxis::kDp, groups.dp},
      {plan::GroupAxis::kCp, groups.cp},
      {plan::GroupAxis::kPp, groups.pp},
      {plan::GroupAxis::kTp, groups.tp},
      {plan::GroupAxis::kZero, groups.zero}};
  for (const auto& [axis, group] : axes) {
    const char* name = plan::GroupAxisName(axis);
    if (group == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("groups: ", name, " has none"));
    }
    const plan::Group expected = plan::GroupOf(config.mesh, config.at.global_rank, axis);
    if (group->size() != static_cast<int>(expected.members.size()) ||
        group->group_rank() != expected.group_rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("groups: ", name, " has ", group->size(), " members and this rank is ",
                       group->group_rank(), "; by spec.mesh it is ", expected.group_rank, " of ",
                       expected.members.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(
    const v1::TrainingJobSpec& spec, const v1::MeshCoordinates& coordinates,
    const MeshGroups& groups, const JobData& data, const WeightReader* weights, Device& device,
    const StateOptions& state) {
  TESSERA_ASSIGN_OR_RETURN(const TrainingConfig config, MakeTrainingConfig(spec, coordinates));
  TESSERA_RETURN_IF_ERROR(CheckGroups(config, groups));
  TESSERA_RETURN_IF_ERROR(CheckData(config, data));
  return MeshTrainer::Create(config, groups, data, weights, device, state);
}

}  // namespace tessera
