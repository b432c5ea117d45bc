// The arithmetic of reductions: vector code with run-time dispatch, the same bits on every target.
#ifndef TESSERA_WORKER_COMM_REDUCE_H_
#define TESSERA_WORKER_COMM_REDUCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "worker/comm/communicator.h"

namespace tessera {

// float32, bfloat16, float16 and int64.
bool CanReduce(DType dtype);

// Every output[i] = round(sources[0][i] op sources[1][i] op ...), i < count, in that order.
// float32, bfloat16 and float16 are combined in fp32 and rounded once, to nearest even; int64
// wraps. kMax: a NaN in any source wins. One source is copied bit for bit.
//
// An output may be one of the sources; otherwise they do not overlap. Pointers are aligned to the
// element. REQUIRES: CanReduce(dtype), at least one source and output.
void Reduce(DType dtype, ReduceOp op, absl::Span<const void* const> sources,
            absl::Span<void* const> outputs, int64_t count);

// memcpy that leaves the caches alone where the range is too large for them.
void CopyBytes(const void* from, void* to, int64_t size_bytes);

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_REDUCE_H_
