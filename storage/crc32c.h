// crc32c of values in the tiers, by the processor's instructions.
#ifndef TESSERA_STORAGE_CRC32C_H_
#define TESSERA_STORAGE_CRC32C_H_

#include <cstdint>

#include "absl/types/span.h"

namespace tessera {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of bytes. Goes on from `crc`, the sum of what stands
// before them: Crc32c(b, Crc32c(a)) is that of a and b together.
uint32_t Crc32c(absl::Span<const uint8_t> bytes, uint32_t crc = 0);

}  // namespace tessera

#endif  // TESSERA_STORAGE_CRC32C_H_
