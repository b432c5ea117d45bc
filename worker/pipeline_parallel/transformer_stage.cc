#include "worker/pipeline_parallel/transformer_stage.h"

#include <algorithm>
#include <utility>

#include "kernels/status_macros.h"

namespace tessera {

using plan::ActionKind;

absl::StatusOr<std::unique_ptr<TransformerStage>> TransformerStage::Create(
    const ModelConfig& config, const ModelPart& part, const StageOptions& options,
    ParameterStore& store, const TensorParallel& tp, Device& device, Stream& stream) {
  const bool has_head = std::any_of(part.chunks.begin(), part.chunks.end(),
                                    [](const ModelChunk& chunk) { return chunk.has_head; });
  TESSERA_ASSIGN_OR_RETURN(
      TransformerScratch scratch,
      TransformerScratch::Create(config, part.tp, has_head, options.activations, device, stream));
  std::unique_ptr<TransformerStage> stage(
      new TransformerStage(std::move(scratch), options.activations.dtype, device));
  stage->weights_apart_ = options.activations.weights_apart;
  stage->losses_.resize(options.activations.batch * options.activations.time);
  for (int c = 0; c < static_cast<int>(part.chunks.size()); ++c) {
    Chunk chunk;
    chunk.model = std::make_unique<Transformer>(config, part, c, store, tp);
    for (int i = 0; i < options.slots[c]; ++i) {
      TESSERA_ASSIGN_OR_RETURN(
          TransformerActivations activations,
          TransformerActivations::Create(config, part.tp, part.chunks[c], options.activations,
                                         stage->scratch_, device));
      chunk.slots.push_back({-1, std::move(activations)});
    }
    stage->chunks_.push_back(std::move(chunk));
  }
  const bool is_whole = part.chunks.front().has_embedding && part.chunks.back().has_head;
  for (int i = 0; i < (is_whole ? 0 : kSendBuffers); ++i) {
    stage->send_buffers_.push_back(stage->send_memory_.New(
        options.activations.dtype, {stage->scratch_.shard_rows, config.hidden_size},
        "pipeline message", MemoryCategory::kCommunication));
  }
  TESSERA_RETURN_IF_ERROR(stage->send_memory_.status());
  return stage;
}

void TransformerStage::BeginTraining(const MicroBatchIo* io, float gradient_scale) {
  io_ = io;
  is_training_ = true;
  gradient_scale_ = gradient_scale;
  for (Chunk& chunk : chunks_) {
    for (Slot& slot : chunk.slots) slot.micro_batch = -1;
  }
}

void TransformerStage::BeginEvaluation(const MicroBatchIo* io) {
  BeginTraining(io, 1);
  is_training_ = false;
}

void TransformerStage::Assign(int chunk, int micro_batch) {
  for (Slot& slot : chunks_[chunk].slots) {
    if (slot.micro_batch >= 0) continue;
    slot.micro_batch = micro_batch;
    return;
  }
}

void TransformerStage::Release(int chunk, int micro_batch) {
  for (Slot& slot : chunks_[chunk].slots) {
    if (slot.micro_batch == micro_batch) slot.micro_batch = -1;
  }
}

int TransformerStage::SlotOf(int chunk, int micro_batch) const {
  const std::vector<Slot>& slots = chunks_[chunk].slots;
  const auto slot = std::find_if(slots.begin(), slots.end(),
                                 [&](const Slot& each) { return each.micro_batch == micro_batch; });
  return static_cast<int>(slot - slots.begin());
}

Tensor TransformerStage::Input(int chunk, int micro_batch) const {
  return chunks_[chunk].slots[SlotOf(chunk, micro_batch)].activations.input;
}

Tensor TransformerStage::Output(int chunk, int micro_batch) const {
  return chunks_[chunk].slots[SlotOf(chunk, micro_batch)].activations.output();
}

Tensor TransformerStage::Gradient(int chunk, int micro_batch) const {
  return chunks_[chunk].slots[SlotOf(chunk, micro_batch)].activations.d_residual;
}

absl::Status TransformerStage::Compute(const plan::Action& action, Stream& stream) {
  const Transformer& model = *chunks_[action.chunk].model;
  TransformerActivations& activations =
      chunks_[action.chunk].slots[SlotOf(action.chunk, action.micro_batch)].activations;
  if (action.kind == ActionKind::kForward) {
    return Forward(model, action.micro_batch, activations, stream);
  }
  if (action.kind == ActionKind::kBackwardWeight) {
    return model.BackwardWeight(activations, scratch_, stream);
  }
  if (model.chunk().has_head) {
    TESSERA_RETURN_IF_ERROR(ForwardLosses(model, action.micro_batch, activations, stream));
  }
  TESSERA_RETURN_IF_ERROR(model.Backward(activations, scratch_, stream));
  const bool completes = action.kind == ActionKind::kBackward && weights_apart_;
  return completes ? model.BackwardWeight(activations, scratch_, stream) : absl::OkStatus();
}

absl::Status TransformerStage::Forward(const Transformer& model, int micro_batch,
                                       TransformerActivations& activations, Stream& stream) {
  Device& device = stream.device();
  if (model.chunk().has_embedding) {
    TESSERA_RETURN_IF_ERROR(device.CopyIn(io_->ids(micro_batch).data(),
                                          activations.ids.size_bytes(), activations.ids, stream));
  }
  if (model.chunk().has_head) {
    TESSERA_RETURN_IF_ERROR(device.CopyIn(io_->targets(micro_batch).data(),
                                          activations.targets.size_bytes(), activations.targets,
                                          stream));
  }
  TESSERA_RETURN_IF_ERROR(model.Forward(activations, scratch_, stream));
  if (!model.chunk().has_head || is_training_) return absl::OkStatus();
  return ForwardLosses(model, micro_batch, activations, stream);
}

absl::Status TransformerStage::ForwardLosses(const Transformer& model, int micro_batch,
                                             TransformerActivations& activations, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(model.ForwardHead(activations, scratch_, is_training_, stream));
  TESSERA_RETURN_IF_ERROR(model.Loss(activations, scratch_, gradient_scale_, is_training_, stream));
  const Tensor& losses = scratch_.head.losses;
  TESSERA_RETURN_IF_ERROR(
      stream.device().CopyOut(losses, losses_.data(), losses.size_bytes(), stream));
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  io_->on_losses(micro_batch, losses_);
  return absl::OkStatus();
}

}  // namespace tessera
