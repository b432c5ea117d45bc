// Blocks of matrices between an element type and fp32.
#ifndef TESSERA_KERNELS_CPU_PANEL_H_
#define TESSERA_KERNELS_CPU_PANEL_H_

#include <cstdint>

#include "kernels/dtype.h"

namespace tessera::cpu {

// to[i][j] = from[i][j], i < rows, j < columns. Strides in elements.
void PromotePanel(DType dtype, const void* from, int64_t from_stride, int64_t rows, int64_t columns,
                  float* to, int64_t to_stride);

// What DemotePanel adds to the values before it rounds.
struct PanelAddends {
  const float* bias = nullptr;   // (columns); null: none
  const void* addend = nullptr;  // (rows, columns) of the dtype, which may be `to`; null: none
  int64_t addend_stride = 0;
};

// to[i][j] = from[i][j] + bias[j] + addend[i][j], in fp32, rounded once.
void DemotePanel(DType dtype, const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                 const PanelAddends& addends, void* to, int64_t to_stride);

}  // namespace tessera::cpu

#endif  // TESSERA_KERNELS_CPU_PANEL_H_
