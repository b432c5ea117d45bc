// Threads of a CPU kernel: OpenMP over independent outputs.
#ifndef TESSERA_KERNELS_CPU_PARALLEL_H_
#define TESSERA_KERNELS_CPU_PARALLEL_H_

#include <algorithm>
#include <cstdint>

#include "kernels/tensor.h"

namespace tessera::cpu {

// REQUIRES: a tensor of a CpuDevice whose elements are of type T.
template <typename T>
T* Data(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.address());
}

// Address of element `index` of the tensor's memory (in the order of its rows' strides).
inline void* At(const Tensor& tensor, int64_t index) {
  return reinterpret_cast<void*>(tensor.address() + index * DTypeSizeBytes(tensor.dtype()));
}

// Address of the first element of row `row`.
inline void* Row(const Tensor& tensor, int64_t row) {
  return At(tensor, row * tensor.row_stride());
}

// Calls body(i) for every i in [0, count), on up to num_threads threads. One thread opens no
// parallel region at all, so that many single-threaded ranks can share a process.
template <typename Body>
void ParallelFor(int num_threads, int64_t count, const Body& body) {
  if (num_threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for num_threads(num_threads) schedule(static)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// As ParallelFor, for bodies of unequal length: a thread takes the next index when it is free.
template <typename Body>
void ParallelForDynamic(int num_threads, int64_t count, const Body& body) {
  if (num_threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for num_threads(num_threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// Calls body(begin, end) for the consecutive blocks of block_size elements that cover [0, count).
template <typename Body>
void ParallelForBlocks(int num_threads, int64_t count, int64_t block_size, const Body& body) {
  ParallelFor(num_threads, (count + block_size - 1) / block_size, [&](int64_t block) {
    body(block * block_size, std::min(count, (block + 1) * block_size));
  });
}

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_PARALLEL_H_
