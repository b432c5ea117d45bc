// Sums of allocations by category, as the arena counts them.
#ifndef TESSERA_PLAN_LEDGER_BYTES_H_
#define TESSERA_PLAN_LEDGER_BYTES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "plan/ledger.h"
#include "plan/unit_sizes.h"

namespace tessera::plan {

// kernels/arena.h's: the size of every allocation is a multiple, and not 0.
inline constexpr int kArenaAlignmentBytes = 128;
BigSize AllocatedBytes(BigSize bytes);

class LedgerBytes {
 public:
  // count allocations of `bytes` each.
  void Allocate(LedgerCategory category, BigSize bytes, BigSize count = 1);
  // All of other, so many times.
  void Add(const LedgerBytes& other, BigSize times = 1);
  // Memory that is held for a moment, on top of what is held all the time.
  void AddTransient(LedgerCategory category, BigSize allocated_bytes);

  BigSize of(LedgerCategory category) const { return bytes_[static_cast<size_t>(category)]; }

 private:
  std::array<BigSize, std::size(kLedgerCategories)> bytes_ = {};
};

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_BYTES_H_
