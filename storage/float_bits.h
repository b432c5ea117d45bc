// 16-bit floats on the host, for files: to and from fp32.
#ifndef TESSERA_STORAGE_FLOAT_BITS_H_
#define TESSERA_STORAGE_FLOAT_BITS_H_

#include <cstdint>

namespace tessera {

// Exact; NaNs stay NaNs.
float Bfloat16BitsToFloat(uint16_t bits);
float Float16BitsToFloat(uint16_t bits);

// Round to nearest, ties to even (IEEE 754-2008, 4.3.1): beyond the largest value to infinity.
// NaNs become quiet ones.
uint16_t FloatToBfloat16Bits(float value);
uint16_t FloatToFloat16Bits(float value);

}  // namespace tessera

#endif  // TESSERA_STORAGE_FLOAT_BITS_H_
