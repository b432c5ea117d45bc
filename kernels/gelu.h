// GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415, section 2; GPT-2's "gelu_new"):
//   y = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)),  u = sqrt(2 / pi) * (x + 0.044715 x^3).
// One element type S (fp32, bf16, fp16), contiguous, any shape.
#ifndef TESSERA_KERNELS_GELU_H_
#define TESSERA_KERNELS_GELU_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

// output = gelu(input), same shape. INVALID_ARGUMENT: shapes or dtypes that do not fit;
// UNIMPLEMENTED: no such backend.
absl::Status GeluForward(const Tensor& input, const Tensor& output, Stream& stream);

// d_input = d_output * gelu'(input), same shapes; d_input may be d_output. Errors as GeluForward.
absl::Status GeluBackward(const Tensor& input, const Tensor& d_output, const Tensor& d_input,
                          Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_GELU_H_
