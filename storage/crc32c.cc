#include "storage/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

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

uint32_t CopyWithCrc32c(absl::Span<const uint8_t> from, absl::Span<uint8_t> to) {
  constexpr size_t kPieceBytes = 1 << 16;  // stays in a core's cache between the two
  uint32_t crc = 0;
  for (size_t begin = 0; begin < from.size(); begin += kPieceBytes) {
    const absl::Span<const uint8_t> piece = from.subspan(begin, kPieceBytes);
    std::memcpy(to.data() + begin, piece.data(), piece.size());
    // Of the copy: what the caller gets is what has been verified.
    crc = Crc32c({to.data() + begin, piece.size()}, crc);
  }
  return crc;
}

}  // namespace tessera
