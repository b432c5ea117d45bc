// The chunks of a transformer that one rank of a pipeline computes, and the memory of the
// micro-batches in them.
//
// Legend: B sequences of T tokens (this rank's part of each), M = B*T.
#ifndef TESSERA_WORKER_PIPELINE_PARALLEL_TRANSFORMER_STAGE_H_
#define TESSERA_WORKER_PIPELINE_PARALLEL_TRANSFORMER_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/model/transformer.h"
#include "worker/pipeline_parallel/stage_compute.h"

namespace tessera {

// Where a pass gets its tokens and leaves its losses. Called on the thread that runs the pass.
struct MicroBatchIo {
  // (M) each, valid until the next call; of the stage with the embedding, and of that with the
  // head.
  std::function<absl::Span<const int32_t>(int micro_batch)> ids;
  std::function<absl::Span<const int32_t>(int micro_batch)> targets;
  // losses (M); of the stage with the head.
  std::function<void(int micro_batch, absl::Span<const float> losses)> on_losses;
};

struct StageOptions {
  ActivationOptions activations;
  std::vector<int> slots;  // per chunk: micro-batches in memory at once
};

// Used by one thread; store, device and groups outlive it. The head computes logits and losses in
// the micro-batch's backward, so that one set of logits serves all that are in flight.
class TransformerStage : public StageCompute {
 public:
  // RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<std::unique_ptr<TransformerStage>> Create(
      const ModelConfig& config, const ModelPart& part, const StageOptions& options,
      ParameterStore& store, const TensorParallel& tp, Device& device, Stream& stream);

  // What the passes that follow do: training with gradients of the losses' sum times
  // gradient_scale, or evaluating, in which the head computes losses in forward.
  void BeginTraining(const MicroBatchIo* io, float gradient_scale);
  void BeginEvaluation(const MicroBatchIo* io);

  int num_slots(int chunk) const override { return static_cast<int>(chunks_[chunk].slots.size()); }
  void Assign(int chunk, int micro_batch) override;
  void Release(int chunk, int micro_batch) override;
  absl::Status Compute(const plan::Action& action, Stream& stream) override;
  Tensor Input(int chunk, int micro_batch) const override;
  Tensor Output(int chunk, int micro_batch) const override;
  Tensor Gradient(int chunk, int micro_batch) const override;
  Tensor SendBuffer(int index) const override { return send_buffers_[index]; }

  const Transformer& model(int chunk) const { return *chunks_[chunk].model; }

 private:
  struct Slot {
    int micro_batch = -1;  // -1: free
    TransformerActivations activations;
  };
  struct Chunk {
    std::unique_ptr<Transformer> model;
    std::vector<Slot> slots;
  };

  TransformerStage(TransformerScratch scratch, DType dtype, Device& device)
      : scratch_(std::move(scratch)), send_memory_(device, dtype) {}
  // Which slot of the chunk has the micro-batch. REQUIRES: it has memory.
  int SlotOf(int chunk, int micro_batch) const;
  absl::Status Forward(const Transformer& model, int micro_batch,
                       TransformerActivations& activations, Stream& stream);
  absl::Status ForwardLosses(const Transformer& model, int micro_batch,
                             TransformerActivations& activations, Stream& stream);

  TransformerScratch scratch_;
  std::vector<Chunk> chunks_;
  ActivationBuffers send_memory_;
  std::vector<Tensor> send_buffers_;  // none where one stage is all
  std::vector<float> losses_;         // (M)
  const MicroBatchIo* io_ = nullptr;
  bool is_training_ = false;
  bool weights_apart_ = false;
  float gradient_scale_ = 1;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_PIPELINE_PARALLEL_TRANSFORMER_STAGE_H_
