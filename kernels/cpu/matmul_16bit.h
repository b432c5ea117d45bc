// Products of bf16 and fp16 operands.
#ifndef TESSERA_KERNELS_CPU_MATMUL_16BIT_H_
#define TESSERA_KERNELS_CPU_MATMUL_16BIT_H_

#include "absl/status/status.h"
#include "kernels/matmul.h"

namespace tessera::cpu {

// As Matmul, for operands of a 16-bit type. Uses up to 15 MiB of host memory per thread, kept until
// the thread ends.
absl::Status Matmul16Bit(const Tensor& a, const Tensor& b, const Tensor& output,
                         const MatmulOptions& options, int num_threads);

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_MATMUL_16BIT_H_
