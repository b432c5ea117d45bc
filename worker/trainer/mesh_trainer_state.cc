// MeshTrainer: its state: where it comes from, who reads it, and how it is saved.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/fp32_copy.h"
#include "kernels/status_macros.h"
#include "worker/checkpoint/weight_writer.h"
#include "worker/model/initial_weights.h"
#include "worker/model/units.h"
#include "worker/trainer/mesh_trainer.h"

namespace tessera {
namespace {

// Parameters are read and written by pieces of this.
constexpr int64_t kPieceElements = 1 << 20;

v1::MeshCoordinates ToProto(const plan::Coordinates& at) {
  v1::MeshCoordinates coordinates;
  coordinates.set_global_rank(at.global_rank);
  coordinates.set_dp_rank(at.dp_rank);
  coordinates.set_cp_rank(at.cp_rank);
  coordinates.set_pp_rank(at.pp_rank);
  coordinates.set_tp_rank(at.tp_rank);
  return coordinates;
}

}  // namespace

template <typename Body>
absl::Status MeshTrainer::ForPieces(int unit, const Body& body) {
  std::vector<float> values(kPieceElements);
  const std::vector<ParameterSpec>& parameters = store_->units()[unit].parameters;
  for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
    TESSERA_RETURN_IF_ERROR(ForEachRun(parameters[i].slice, [&](SliceRun run) -> absl::Status {
      while (run.count > 0) {
        const int64_t size = std::min(kPieceElements, run.count);
        TESSERA_RETURN_IF_ERROR(body(ParameterId{unit, i}, parameters[i], run,
                                     absl::MakeSpan(values).subspan(0, size)));
        run = {run.local_begin + size, run.whole_begin + size, run.count - size};
      }
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

absl::Status MeshTrainer::FillInitialWeights(const WeightReader* weights) {
  // What is offloaded to nvme begins as the step before the first.
  TESSERA_RETURN_IF_ERROR(state_->RemoveAll());
  TESSERA_RETURN_IF_ERROR(state_->Begin(0));
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    TESSERA_RETURN_IF_ERROR(store_->parameters().BeginUpdate(unit, /*keep=*/false, *stream_));
    TESSERA_RETURN_IF_ERROR(ForPieces(unit, [&](ParameterId id, const ParameterSpec& parameter,
                                                const SliceRun& run, absl::Span<float> values) {
      if (weights != nullptr) {
        TESSERA_RETURN_IF_ERROR(weights->ReadParameter(parameter.name, run.whole_begin, values));
      } else {
        FillInitialValues(parameter, config_.init_seed, run.whole_begin, values);
      }
      return optimizer_->Write(id, run.local_begin, values, *stream_);
    }));
    TESSERA_RETURN_IF_ERROR(store_->parameters().EndUpdate(unit, *stream_));
  }
  TESSERA_RETURN_IF_ERROR(optimizer_->FinishWrites());
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    TESSERA_RETURN_IF_ERROR(state_->SaveUnit(unit));
  }
  state_->StartCommit(Record());
  return absl::OkStatus();
}

v1::SavedRank MeshTrainer::Record() const {
  v1::SavedRank record;
  record.set_format_version(1);
  record.set_step(completed_);
  record.set_updates(updates_);
  *record.mutable_coordinates() = ToProto(config_.at);
  if (loss_scaler_) {
    const LossScaleState scaler = loss_scaler_->state();
    record.mutable_loss_scale()->set_scale(scaler.scale);
    record.mutable_loss_scale()->set_good_steps(scaler.good_steps);
    record.mutable_loss_scale()->set_tolerated_overflows(scaler.tolerated);
  }
  return record;
}

absl::Status MeshTrainer::Resume(int64_t step) {
  TESSERA_ASSIGN_OR_RETURN(const v1::SavedRank record, state_->Restore(step, ToProto(config_.at)));
  completed_ = record.step();
  updates_ = record.updates();
  forgets_saved_ = !state_->commits_steps();
  if (loss_scaler_ && record.has_loss_scale()) {
    loss_scaler_->Restore({record.loss_scale().scale(), record.loss_scale().good_steps(),
                           record.loss_scale().tolerated_overflows()});
  }
  return absl::OkStatus();
}

absl::Status MeshTrainer::ShareWeights(const std::function<absl::Status()>& body) {
  return shared_->Share(body, *stream_);
}

absl::Status MeshTrainer::Export(const std::string& folder) {
  return ExportAs(folder, config_.export_options ? config_.export_options->dtype : config_.dtype);
}

absl::Status MeshTrainer::ExportAs(const std::string& folder, DType dtype) {
  HfConfig config;
  config.model = config_.model;
  config.model.kv_heads = config_.model.num_kv_heads();
  HfWriteOptions options;
  options.dtype = dtype;
  return WriteHfFolder(folder, config, options,
                       [this](absl::string_view name, int64_t begin, absl::Span<float> values) {
                         return ReadElements(name, begin, values);
                       });
}

absl::Status MeshTrainer::ReadElements(absl::string_view name, int64_t begin,
                                       absl::Span<float> values) const {
  return shared_->Read(StateArray::kMaster, name, begin, values, *stream_);
}

absl::StatusOr<int64_t> MeshTrainer::CountFailed(const absl::Status& own) {
  const int64_t failed = own.ok() ? 0 : 1;
  if (config_.mesh.world_size() == 1) return failed;
  return wishes_->Reduce(failed, *stream_);
}

absl::Status MeshTrainer::Suspend(TrainingObserver& observer) {
  if (state_->commits_steps()) {
    // The last step that was not skipped: what came after it is computed again. Whoever says that
    // the run is suspended knows that all ranks have committed.
    const absl::Status settled = state_->Settle();
    TESSERA_ASSIGN_OR_RETURN(const int64_t unsettled, CountFailed(settled));
    TESSERA_RETURN_IF_ERROR(settled);
    if (unsettled > 0) return absl::AbortedError("another rank's tier failed");
    suspended_step_ = offload_->saver()->committed_step();
    return absl::OkStatus();
  }
  const absl::Status saved = state_->SaveAll(Record());
  TESSERA_ASSIGN_OR_RETURN(const int64_t failed, CountFailed(saved));
  if (failed == 0) {
    suspended_step_ = completed_;
    return absl::OkStatus();
  }
  // Training goes on; the next suspend may find more room.
  if (!saved.ok()) {
    observer.OnSuspendFailed(saved);
    return absl::OkStatus();
  }
  return state_->Forget();
}

int64_t MeshTrainer::peak_nvme_bytes() const { return offload_->peak_nvme_bytes(); }

std::vector<ShardInfo> MeshTrainer::shards() const {
  std::vector<ShardInfo> shards;
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    const UnitLayout& layout = store_->layout(unit);
    auto add = [&](const char* kind, const ElementRange& held, int64_t element_bytes,
                   plan::Tier tier) {
      shards.push_back({store_->units()[unit].name, kind, held.begin, held.count,
                        held.count * element_bytes, tier});
    };
    add("parameters", store_->parameters().held(unit), DTypeSizeBytes(config_.dtype),
        offload_->TierOfParameters(unit));
    add("gradients",
        config_.zero.zero_stage < 2 ? layout.whole() : layout.shard(groups_.zero->group_rank()),
        DTypeSizeBytes(config_.gradient_dtype), offload_->TierOfGradients(unit));
    add("optimizer", optimizer_->held(unit), optimizer_->bytes_per_element(unit),
        offload_->TierOfOptimizer(unit));
  }
  return shards;
}

std::vector<std::string> MeshTrainer::parameter_names() const { return shared_->names(); }

absl::StatusOr<std::vector<float>> MeshTrainer::ReadParameter(const std::string& name) const {
  return ReadState(StateArray::kMaster, name);
}

absl::StatusOr<std::vector<float>> MeshTrainer::ReadExpAvg(const std::string& name) const {
  return ReadState(StateArray::kExpAvg, name);
}

absl::StatusOr<std::vector<float>> MeshTrainer::ReadState(StateArray array,
                                                          const std::string& name) const {
  TESSERA_ASSIGN_OR_RETURN(const Shape shape, shared_->ShapeOf(name));
  std::vector<float> values(shape.num_elements());
  TESSERA_RETURN_IF_ERROR(shared_->Read(array, name, 0, absl::MakeSpan(values), *stream_));
  return values;
}

absl::Status MeshTrainer::WriteParameter(const std::string& name,
                                         const std::vector<float>& values) {
  TESSERA_ASSIGN_OR_RETURN(const Shape shape, shared_->ShapeOf(name));
  if (static_cast<int64_t>(values.size()) != shape.num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter \"", name, "\": ", values.size(),
                                                   " values: must be ", shape.num_elements()));
  }
  const absl::StatusOr<ParameterId> id = store_->Find(name);
  if (!id.ok()) return absl::OkStatus();  // another rank has it
  TESSERA_RETURN_IF_ERROR(store_->parameters().BeginUpdate(id->unit, /*keep=*/true, *stream_));
  TESSERA_RETURN_IF_ERROR(
      ForPieces(id->unit, [&](ParameterId piece_id, const ParameterSpec& parameter,
                              const SliceRun& run, absl::Span<float> piece) {
        if (parameter.name != name) return absl::OkStatus();
        return optimizer_->Write(piece_id, run.local_begin,
                                 absl::MakeConstSpan(values).subspan(run.whole_begin, piece.size()),
                                 *stream_);
      }));
  return store_->parameters().EndUpdate(id->unit, *stream_);
}

absl::StatusOr<std::map<std::string, std::vector<float>>> MeshTrainer::ReadOwnParameters() const {
  std::map<std::string, std::vector<float>> own;
  for (int unit = 0; unit < static_cast<int>(store_->units().size()); ++unit) {
    const std::vector<ParameterSpec>& parameters = store_->units()[unit].parameters;
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      if (store_->parameters().is_sharded(unit)) continue;
      if (store_->parameters().is_offloaded(unit)) continue;
      std::vector<float>& values = own[parameters[i].name];
      values.resize(parameters[i].local_shape.num_elements());
      const ElementRange slot = store_->layout(unit).slot(i);
      TESSERA_RETURN_IF_ERROR(
          CopyOutFp32(store_->parameters().Held(unit, slot), absl::MakeSpan(values), *stream_));
    }
  }
  return own;
}

}  // namespace tessera
