#include "storage/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace tessera {

uint32_t Crc32c(absl::Span<const uint8_t> bytes, uint32_t crc) {
  constexpr size_t kPieceBytes = 1 << 30;  // the library takes an int
  crc = ~crc;
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), kPieceBytes);
    // Reads only, whatever its type says.
    crc = crc32_iscsi(const_cast<uint8_t*>(bytes.data()), static_cast<int>(size), crc);
    bytes.remove_prefix(size);
  }
  return ~crc;
}

}  // namespace tessera
