// What matrix products reach at best on this machine: oneDNN alone.
#ifndef TESSERA_TESTS_BENCH_PRODUCT_LIMIT_H_
#define TESSERA_TESTS_BENCH_PRODUCT_LIMIT_H_

#include "kernels/dtype.h"

namespace tessera {

// Best GFLOP/s of oneDNN's matmul of (2048, 768) x (768, 3072), divided by `divisor` each, over
// `rounds` of at least 0.2 s. dtype: kFloat32, or kBFloat16 with an fp32 result. 0 where oneDNN has
// no such product on this processor.
double ProductLimitGflops(DType dtype, int threads, int rounds, int divisor);

}  // namespace tessera

#endif  // TESSERA_TESTS_BENCH_PRODUCT_LIMIT_H_
