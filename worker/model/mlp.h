// The MLP of a decoder layer: GPT-2's gelu(x W1 + b1) W2 + b2, or Llama's
// (silu(x Wg) * (x Wu)) Wd.
//
// Legend: M rows (tokens), R of them per rank in the norm regions (layout.h); C channels, F
// intermediate channels of this rank.
#ifndef TESSERA_WORKER_MODEL_MLP_H_
#define TESSERA_WORKER_MODEL_MLP_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/model_config.h"
#include "worker/model/parallel_scratch.h"
#include "worker/tensor_parallel/linear.h"
#include "worker/tensor_parallel/tensor_parallel.h"

namespace tessera {

// Weights or their gradients.
struct MlpTensors {
  LinearTensors gate;        // C to F; Llama only, null else
  LinearTensors up;          // C to F
  LinearTensors projection;  // F to C

  bool is_gated() const { return !gate.weight.is_null(); }
};

// Views into the activations of one micro-batch.
struct MlpActivations {
  Tensor gate;    // (M, F); null where not gated
  Tensor up;      // (M, F)
  Tensor hidden;  // (M, F), after the activation

  // local: one rank's sizes.
  static MlpActivations Create(const ModelConfig& local, int64_t rows, ActivationBuffers& buffers);
};

// Gradients of activations, from which the weights' follow.
struct MlpGradients {
  Tensor up;    // (M, F)
  Tensor gate;  // (M, F); null where not gated

  static MlpGradients Create(const ModelConfig& local, int64_t rows, ActivationBuffers& buffers);
};

// Stateless; used by one thread.
class Mlp {
 public:
  // output (R, C) = residual (R, C) + mlp(input (R, C)); activations.* =.
  static absl::Status Forward(const Tensor& input, const MlpTensors& parameters,
                              const Tensor& residual, const MlpActivations& activations,
                              const ParallelScratch& scratch, const Tensor& output,
                              const TensorParallel& tp, Stream& stream);
  // activations.* = from input (R, C): what backward needs.
  static absl::Status ForwardHidden(const Tensor& input, const MlpTensors& parameters,
                                    const MlpActivations& activations,
                                    const ParallelScratch& scratch, const TensorParallel& tp,
                                    Stream& stream);
  // d_input (R, C) and d_activations.* = the branch's gradients from whole_d_output (M, C), all
  // rows of the output's.
  static absl::Status BackwardInput(const MlpTensors& parameters, const MlpActivations& activations,
                                    const Tensor& whole_d_output, const MlpGradients& d_activations,
                                    const ParallelScratch& scratch, const Tensor& d_input,
                                    const TensorParallel& tp, Stream& stream);
  // gradients.* += from input (R, C) and what BackwardInput wrote. whole_d_output may lie in
  // scratch.gathered, which is written after it was read.
  static absl::Status BackwardWeight(const Tensor& input, const MlpActivations& activations,
                                     const Tensor& whole_d_output,
                                     const MlpGradients& d_activations,
                                     const ParallelScratch& scratch, const MlpTensors& gradients,
                                     const TensorParallel& tp, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MLP_H_
