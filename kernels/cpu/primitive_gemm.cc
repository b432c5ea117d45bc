#include "kernels/cpu/primitive_gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <map>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tessera::cpu {
namespace {

// oneDNN's C interface, which reports errors without exceptions, with owners for its objects.
template <typename Handle, dnnl_status_t (*kDestroy)(Handle)>
struct Destroyer {
  using pointer = Handle;
  void operator()(Handle handle) const { kDestroy(handle); }
};
template <typename Handle, dnnl_status_t (*kDestroy)(Handle)>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Handle, kDestroy>>;

using Engine = Owner<dnnl_engine_t, dnnl_engine_destroy>;
using EngineStream = Owner<dnnl_stream_t, dnnl_stream_destroy>;
using Attributes = Owner<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owner<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using Descriptor = Owner<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Owner<dnnl_primitive_t, dnnl_primitive_destroy>;
using Memory = Owner<dnnl_memory_t, dnnl_memory_destroy>;

// Type of the operands, sizes, strides, transposes, alpha and beta.
using Key = std::tuple<DType, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool,
                       float, bool>;

struct Product {
  dnnl_memory_desc_t a, b, c;
  Primitive primitive;
};

dnnl_memory_desc_t MatrixDescriptor(dnnl_data_type_t type, int64_t rows, int64_t columns,
                                    int64_t row_stride, bool transposed) {
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t strides = {transposed ? 1 : row_stride, transposed ? row_stride : 1};
  dnnl_memory_desc_t descriptor;
  dnnl_memory_desc_init_by_strides(&descriptor, 2, dims, type, strides);
  return descriptor;
}

Attributes MakeAttributes(float alpha, bool accumulate) {
  dnnl_primitive_attr_t raw = nullptr;
  if (dnnl_primitive_attr_create(&raw) != dnnl_success) return nullptr;
  Attributes attributes(raw);
  if (alpha != 1 && dnnl_primitive_attr_set_output_scales(raw, 1, 0, &alpha) != dnnl_success) {
    return nullptr;
  }
  if (!accumulate) return attributes;
  dnnl_post_ops_t raw_ops = nullptr;
  if (dnnl_post_ops_create(&raw_ops) != dnnl_success) return nullptr;
  const PostOps ops(raw_ops);
  if (dnnl_post_ops_append_sum(raw_ops, 1) != dnnl_success ||
      dnnl_primitive_attr_set_post_ops(raw, raw_ops) != dnnl_success) {
    return nullptr;
  }
  return attributes;
}

// One thread's engine, stream and primitives: with oneDNN's default scratchpad, a primitive may run
// only in the thread that made it.
class ThreadCache {
 public:
  ThreadCache() {
    dnnl_engine_t engine = nullptr;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) return;
    engine_.reset(engine);
    dnnl_stream_t stream = nullptr;
    if (dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success) {
      stream_.reset(stream);
    }
  }

  dnnl_engine_t engine() const { return engine_.get(); }
  dnnl_stream_t stream() const { return stream_.get(); }

  // Null where oneDNN refuses.
  const Product* Find(const Key& key) {
    auto found = products_.find(key);
    if (found != products_.end()) return &found->second;
    Product product;
    if (stream_ == nullptr || !Make(key, &product)) return nullptr;
    // A model has a few dozen shapes; more are those of inputs whose length varies.
    if (products_.size() >= kMostProducts) products_.clear();
    return &products_.emplace(key, std::move(product)).first->second;
  }

 private:
  static constexpr size_t kMostProducts = 256;

  bool Make(const Key& key, Product* product) const {
    const auto [dtype, m, n, k, a_stride, b_stride, c_stride, a_transposed, b_transposed, alpha,
                add] = key;
    const dnnl_data_type_t type = dtype == DType::kBFloat16 ? dnnl_bf16 : dnnl_f32;
    product->a = MatrixDescriptor(type, m, k, a_stride, a_transposed);
    product->b = MatrixDescriptor(type, k, n, b_stride, b_transposed);
    product->c = MatrixDescriptor(dnnl_f32, m, n, c_stride, false);
    dnnl_matmul_desc_t matmul;
    if (dnnl_matmul_desc_init(&matmul, &product->a, &product->b, nullptr, &product->c) !=
        dnnl_success) {
      return false;
    }
    const Attributes attributes = MakeAttributes(alpha, add);
    dnnl_primitive_desc_t raw = nullptr;
    if (attributes == nullptr || dnnl_primitive_desc_create(&raw, &matmul, attributes.get(),
                                                            engine(), nullptr) != dnnl_success) {
      return false;
    }
    const Descriptor descriptor(raw);
    dnnl_primitive_t primitive = nullptr;
    if (dnnl_primitive_create(&primitive, raw) != dnnl_success) return false;
    product->primitive.reset(primitive);
    return true;
  }

  Engine engine_;
  EngineStream stream_;
  std::map<Key, Product> products_;
};

Memory MakeMemory(const dnnl_memory_desc_t& descriptor, dnnl_engine_t engine, void* data) {
  dnnl_memory_t memory = nullptr;
  dnnl_memory_create(&memory, &descriptor, engine, data);
  return Memory(memory);
}

bool Run(const ThreadCache& cache, const Product& product, const OperandView& a,
         const OperandView& b, float* c) {
  const Memory from_a = MakeMemory(product.a, cache.engine(), const_cast<void*>(a.data));
  const Memory from_b = MakeMemory(product.b, cache.engine(), const_cast<void*>(b.data));
  const Memory to_c = MakeMemory(product.c, cache.engine(), c);
  if (from_a == nullptr || from_b == nullptr || to_c == nullptr) return false;
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, from_a.get()}, {DNNL_ARG_WEIGHTS, from_b.get()}, {DNNL_ARG_DST, to_c.get()}};
  return dnnl_primitive_execute(product.primitive.get(), cache.stream(), 3, arguments) ==
             dnnl_success &&
         dnnl_stream_wait(cache.stream()) == dnnl_success;
}

}  // namespace

bool HasNativeBf16() {
  static const bool native = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
                             dnnl_cpu_isa_avx512_core_bf16;
  return native;
}

bool PrimitiveGemm(DType dtype, int64_t m, int64_t n, int64_t k, float alpha, const OperandView& a,
                   const OperandView& b, float beta, float* c, int64_t c_row_stride) {
  thread_local ThreadCache cache;
  // A setting of the calling thread, not of the process; a primitive splits its work when made.
  const int threads = omp_get_max_threads();
  if (threads != 1) omp_set_num_threads(1);
  const Product* product = cache.Find({dtype, m, n, k, a.row_stride, b.row_stride, c_row_stride,
                                       a.transposed, b.transposed, alpha, beta != 0});
  const bool done = product != nullptr && Run(cache, *product, a, b, c);
  if (threads != 1) omp_set_num_threads(threads);
  return done;
}

}  // namespace tessera::cpu
