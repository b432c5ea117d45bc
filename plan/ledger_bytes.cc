#include "plan/ledger_bytes.h"

#include <algorithm>

namespace tessera::plan {

BigSize AllocatedBytes(BigSize bytes) {
  constexpr BigSize kAlignment = kArenaAlignmentBytes;
  return std::max<BigSize>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
}

void LedgerBytes::Allocate(LedgerCategory category, BigSize bytes, BigSize count) {
  bytes_[static_cast<size_t>(category)] += AllocatedBytes(bytes) * count;
}

void LedgerBytes::Add(const LedgerBytes& other, BigSize times) {
  for (const LedgerCategory category : kLedgerCategories) {
    bytes_[static_cast<size_t>(category)] += other.of(category) * times;
  }
}

void LedgerBytes::AddTransient(LedgerCategory category, BigSize allocated_bytes) {
  bytes_[static_cast<size_t>(category)] += allocated_bytes;
}

}  // namespace tessera::plan
