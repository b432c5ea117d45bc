#include "kernels/cpu/sgemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

namespace tessera::cpu {

bool Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
           float beta, float* c, int64_t c_row_stride) {
  // A setting of the calling thread, not of the process.
  const int threads = omp_get_max_threads();
  if (threads != 1) omp_set_num_threads(1);
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha, a.data,
                 a.row_stride, b.data, b.row_stride, beta, c, c_row_stride);
  if (threads != 1) omp_set_num_threads(threads);
  return status == dnnl_success;
}

}  // namespace tessera::cpu
