// Affine map y = x W (+ b) on one rank.
//
// Legend: M rows (tokens), I inputs, O outputs. Inputs, outputs and parameters have one element
// type; gradients of parameters that or fp32.
#ifndef TESSERA_WORKER_TENSOR_PARALLEL_LINEAR_H_
#define TESSERA_WORKER_TENSOR_PARALLEL_LINEAR_H_

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
  // d_input (M, I) = or += d_output (M, O) W^T
  enum class InputGradient : uint8_t { kWrite, kAdd };
  static absl::Status BackwardInput(const LinearTensors& parameters, const Tensor& d_output,
                                    InputGradient mode, const Tensor& d_input, Stream& stream);
  // gradients.weight += input^T d_output; gradients.bias += row sum of d_output (M, O).
  static absl::Status BackwardWeight(const Tensor& input, const Tensor& d_output,
                                     const LinearTensors& gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TENSOR_PARALLEL_LINEAR_H_
