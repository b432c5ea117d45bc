// Affine map y = x W (+ b).
//
// Legend: M rows (tokens), I inputs, O outputs. Inputs, outputs and parameters have one element
// type; gradients of parameters that or fp32.
#ifndef TESSERA_WORKER_MODEL_LINEAR_H_
#define TESSERA_WORKER_MODEL_LINEAR_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// How a weight matrix is stored.
enum class WeightLayout : uint8_t {
  kInOut,  // (I, O), as GPT-2's Conv1D
  kOutIn,  // (O, I), as torch.nn.Linear, so Llama's and every head's
};

// Weights or their gradients.
struct LinearTensors {
  Tensor weight;  // (I, O) or (O, I)
  Tensor bias;    // (O); null: none
  WeightLayout layout = WeightLayout::kInOut;
};

// Stateless; used by one thread. Matrices may be column views.
class Linear {
 public:
  // output (M, O) = input (M, I) W [+ b] [+ addend (M, O), null for none]
  static absl::Status Forward(const Tensor& input, const LinearTensors& parameters,
                              const Tensor& addend, const Tensor& output, Stream& stream);
  // What Backward does to d_input.
  enum class InputGradient : uint8_t { kWrite, kAdd };
  // d_input (M, I) = or += d_output W^T; gradients.weight += input^T d_output; gradients.bias +=
  // row sum of d_output (M, O).
  static absl::Status Backward(const Tensor& input, const LinearTensors& parameters,
                               const Tensor& d_output, InputGradient mode, const Tensor& d_input,
                               const LinearTensors& gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_LINEAR_H_
