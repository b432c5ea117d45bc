// Which positions of a sequence a context-parallel rank holds.
//
// Zigzag order (Llama 3, arXiv 2407.21783, section 3.3.2): the sequence is cut into 2 * cp_size
// equal pieces and cp_rank i holds pieces i and 2 * cp_size - 1 - i, so that causal attention is
// equal work on every rank. T = sequence length in tokens, of the whole sequence.
#ifndef TESSERA_PLAN_SEQUENCE_SPLIT_H_
#define TESSERA_PLAN_SEQUENCE_SPLIT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace tessera::plan {

// INVALID_ARGUMENT if cp_size or sequence_length is below 1, or if cp_size > 1 and 2 * cp_size does
// not divide sequence_length; that message names the nearest lengths that it does divide.
absl::Status CheckSequenceSplit(int cp_size, int sequence_length);

struct PositionRange {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }

  friend bool operator==(const PositionRange&, const PositionRange&) = default;
};

// REQUIRES in both: CheckSequenceSplit is OK; 0 <= cp_rank < cp_size.

// The two pieces, ascending; local tokens are the first's, then the second's. With cp_size = 1 the
// first is the whole sequence and the second is empty (at its end), since any length is allowed.
std::array<PositionRange, 2> PiecesOf(int cp_size, int cp_rank, int sequence_length);

// Global positions of the rank's T/cp tokens in local order.
std::vector<int32_t> PositionsOf(int cp_size, int cp_rank, int sequence_length);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_SEQUENCE_SPLIT_H_
