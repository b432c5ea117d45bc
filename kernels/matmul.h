// Matrix products with what is fused into them, and the sum over rows that a bias gradient needs.
//
// Legend: M rows and N columns of the output, K summed. a, b and bias have one element type S
// (fp32, bf16, fp16), output and addend one that is S or fp32. Every matrix is row-major and may be
// a column view (Tensor::Columns). Sums are fp32 and are rounded once, with what is added to them;
// their order depends on the shapes alone, not on the number of threads.
#ifndef TESSERA_KERNELS_MATMUL_H_
#define TESSERA_KERNELS_MATMUL_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

struct MatmulOptions {
  bool transpose_a = false;  // a is stored (K, M)
  bool transpose_b = false;  // b is stored (N, K)
  bool accumulate = false;   // output += instead of =
  float alpha = 1;           // factor of the product
  Tensor bias;               // (N), contiguous; added to every row. Null: none.
  Tensor addend;             // (M, N); added. May be output itself. Null: none.
};

// output (M, N) = or += alpha * a (M, K) * b (K, N) [+ bias] [+ addend]
// output overlaps neither a nor b. INVALID_ARGUMENT: shapes or dtypes that do not fit, or
// accumulate together with bias or addend. UNIMPLEMENTED: no such backend in this build.
absl::Status Matmul(const Tensor& a, const Tensor& b, const Tensor& output,
                    const MatmulOptions& options, Stream& stream);

// output (N) += sum over rows of input (M, N), fp32, bf16 or fp16; output is of that type or fp32.
// Errors as Matmul.
absl::Status AddRowSum(const Tensor& input, const Tensor& output, Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_MATMUL_H_
