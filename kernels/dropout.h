// Dropout (Srivastava et al., JMLR 15, 2014, section 4), scaled in training, with a mask that no
// layout changes: whether an element is dropped is a function of (seed, stream, its index in the
// whole tensor) alone, by Philox4x32-10. Nothing is stored; backward draws the mask again.
#ifndef TESSERA_KERNELS_DROPOUT_H_
#define TESSERA_KERNELS_DROPOUT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera {

struct DropoutOptions {
  float probability = 0;     // p, with which an element becomes 0: in [0, 1)
  uint64_t seed = 0;         // key of the generator
  uint64_t stream = 0;       // names the tensor among those of a seed: step, layer, place
  int64_t first_index = 0;   // index, in the whole tensor, of input's first element
  int64_t row_elements = 0;  // elements of a row of the whole tensor; 0: as many as input's columns
};

// output (M, C) = input (M, C) / (1 - p) where kept, 0 where dropped; output may be input. Element
// (i, j) has index first_index + i * row_elements + j, and is dropped where word index % 4 of
// PhiloxBlock(seed, stream, index / 4) is below p * 2^32, rounded. The gradient is the same
// function of d_output. One element type (fp32, bf16, fp16); both may be column views.
// INVALID_ARGUMENT: shapes, dtypes or options that do not fit; UNIMPLEMENTED: no such backend.
absl::Status Dropout(const Tensor& input, const DropoutOptions& options, const Tensor& output,
                     Stream& stream);

}  // namespace tessera

#endif  // TESSERA_KERNELS_DROPOUT_H_
