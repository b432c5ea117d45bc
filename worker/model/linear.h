// Affine map y = x W + b.
//
// Legend: M rows (tokens), I inputs, O outputs. fp32. W is stored (I, O), as GPT-2's Conv1D.
#ifndef TESSERA_WORKER_MODEL_LINEAR_H_
#define TESSERA_WORKER_MODEL_LINEAR_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// Weights or their gradients.
struct LinearTensors {
  Tensor weight;  // (I, O)
  Tensor bias;    // (O)
};

// Stateless; used by one thread.
class Linear {
 public:
  // output (M, O) = input (M, I) W + b [+ addend (M, O), null for none]
  static absl::Status Forward(const Tensor& input, const LinearTensors& parameters,
                              const Tensor& addend, const Tensor& output, Stream& stream);
  // d_input (M, I) = d_output W^T; gradients.weight += input^T d_output; gradients.bias += row sum
  // of d_output (M, O).
  static absl::Status Backward(const Tensor& input, const LinearTensors& parameters,
                               const Tensor& d_output, const Tensor& d_input,
                               const LinearTensors& gradients, Stream& stream);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_LINEAR_H_
