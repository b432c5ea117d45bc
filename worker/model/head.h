// The last unit: final norm, product with the token embedding (tied) or a matrix of its own, both
// split by vocabulary over tp, and cross-entropy.
//
// Legend: M rows (tokens), R of them per rank in the norm regions (layout.h); C channels, V token
// ids, v columns of this rank (V where tp_size is 1); targets int32.
#ifndef TESSERA_WORKER_MODEL_HEAD_H_
#define TESSERA_WORKER_MODEL_HEAD_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/model_config.h"
#include "worker/model/norm.h"
#include "worker/model/parallel_scratch.h"
#include "worker/tensor_parallel/tensor_parallel.h"
#include "worker/tensor_parallel/vocab_parallel_cross_entropy.h"

namespace tessera {

// Weights or their gradients.
struct HeadTensors {
  NormTensors norm;
  Tensor tokens;  // (v, C), of the embedding unit where tied and held once
};

// Of one micro-batch; its contents do not outlive the head's backward.
struct HeadActivations {
  NormActivations norm;
  Tensor logits;  // (M, v); their gradients after Loss with backward
  Tensor losses;  // (M) fp32
  CrossEntropyScratch cross_entropy;

  // local: one rank's sizes.
  static HeadActivations Create(const ModelConfig& local, const TensorParallelLayout& tp,
                                int64_t rows, int64_t shard_rows, ActivationBuffers& buffers);
};

// Used by one thread; tp outlives it.
class Head {
 public:
  Head(const ModelConfig& config, const TensorParallel& tp)
      : vocab_size_(config.vocab_size), norm_(config), tp_(tp) {}

  // activations.norm, logits = from input (R, C)
  absl::Status Forward(const Tensor& input, const HeadTensors& parameters,
                       const HeadActivations& activations, const ParallelScratch& scratch,
                       Stream& stream) const;
  // activations.losses = per row, 0 where targets (M) is -1. With backward, logits become their
  // gradients, times gradient_scale.
  absl::Status Loss(const Tensor& targets, float gradient_scale, bool backward,
                    const HeadActivations& activations, Stream& stream) const;
  // d_input (R, C) =; gradients.* +=; d_norm (R, C) is scratch. After Loss with backward.
  absl::Status Backward(const Tensor& input, const HeadTensors& parameters,
                        const HeadActivations& activations, const ParallelScratch& scratch,
                        const Tensor& d_norm, const Tensor& d_input, const HeadTensors& gradients,
                        Stream& stream) const;

 private:
  const int64_t vocab_size_;
  const Norm norm_;
  const TensorParallel& tp_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_HEAD_H_
