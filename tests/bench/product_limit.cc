#include "tests/bench/product_limit.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace tessera {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double ProductLimitGflops(DType dtype, int threads, int rounds, int divisor) {
  using Type = dnnl::memory::data_type;
  const int64_t m = 2048 / divisor, n = 3072 / divisor, k = 768 / divisor;
  const Type type = dtype == DType::kBFloat16 ? Type::bf16 : Type::f32;
  omp_set_num_threads(threads);
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const auto tag = dnnl::memory::format_tag::ab;
    const dnnl::memory::desc a({m, k}, type, tag), b({k, n}, type, tag), c({m, n}, Type::f32, tag);
    const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
    dnnl::memory from_a(a, engine), from_b(b, engine), to(c, engine);
    // The value matters little, but zeros and subnormals would.
    for (dnnl::memory* each : {&from_a, &from_b}) {
      const size_t bytes = each->get_desc().get_size();
      std::fill_n(static_cast<uint8_t*>(each->get_data_handle()), bytes, uint8_t{0x3e});
    }
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
      const double start = Now();
      double end = start;
      int count = 0;
      for (; end - start < 0.2; end = Now(), ++count) {
        product.execute(stream,
                        {{DNNL_ARG_SRC, from_a}, {DNNL_ARG_WEIGHTS, from_b}, {DNNL_ARG_DST, to}});
        stream.wait();
      }
      best = std::max(best, 2.0 * m * n * k * count / (end - start) * 1e-9);
    }
    return best;
  } catch (const dnnl::error&) {
    return 0;
  }
}

}  // namespace tessera
