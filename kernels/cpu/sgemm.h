// One thread's single-precision matrix product.
#ifndef TESSERA_KERNELS_CPU_SGEMM_H_
#define TESSERA_KERNELS_CPU_SGEMM_H_

#include <cstdint>

namespace tessera::cpu {

struct MatrixView {
  const float* data;
  int64_t row_stride;
  bool transposed = false;
};

// c (m, n) = alpha * a (m, k) * b (k, n) + beta * c, row-major. Runs on the calling thread alone:
// oneDNN would otherwise split k over threads, and sums would depend on their number. False where
// oneDNN refuses.
bool Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
           float beta, float* c, int64_t c_row_stride);

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_SGEMM_H_
