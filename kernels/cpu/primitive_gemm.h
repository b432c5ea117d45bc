// One thread's matrix product by oneDNN's matmul primitive: bf16 operands where the processor
// multiplies them itself.
#ifndef TESSERA_KERNELS_CPU_PRIMITIVE_GEMM_H_
#define TESSERA_KERNELS_CPU_PRIMITIVE_GEMM_H_

#include <cstdint>

#include "kernels/dtype.h"

namespace tessera::cpu {

struct OperandView {
  const void* data;
  int64_t row_stride;
  bool transposed = false;
};

// True where oneDNN has bf16 code for this processor's AVX512_BF16 or AMX. A constant of the
// process.
bool HasNativeBf16();

// c (m, n) fp32 = alpha * a (m, k) * b (k, n) + beta * c, row-major, beta 0 or 1; a and b of dtype,
// bf16 or fp32. Runs on the calling thread alone, as Sgemm. Each thread keeps its primitives for
// the shapes it meets. False where oneDNN refuses: bf16 without HasNativeBf16, for one. fp32 is
// there for tests, which so reach all but the type on every processor: Sgemm needs no primitives.
bool PrimitiveGemm(DType dtype, int64_t m, int64_t n, int64_t k, float alpha, const OperandView& a,
                   const OperandView& b, float beta, float* c, int64_t c_row_stride);

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_PRIMITIVE_GEMM_H_
