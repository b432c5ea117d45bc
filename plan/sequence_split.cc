#include "plan/sequence_split.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera::plan {

absl::Status CheckSequenceSplit(int cp_size, int sequence_length) {
  if (cp_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cp_size: ", cp_size, ": must be at least 1"));
  }
  if (sequence_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence_length: ", sequence_length, ": must be at least 1"));
  }
  const int64_t pieces = int64_t{2} * cp_size;
  if (cp_size == 1 || sequence_length % pieces == 0) return absl::OkStatus();
  const int64_t below = sequence_length / pieces * pieces;
  const std::string nearest =
      below == 0 ? absl::StrCat("the least is ", pieces)
                 : absl::StrCat("the nearest are ", below, " and ", below + pieces);
  return absl::InvalidArgumentError(absl::StrCat("sequence_length: ", sequence_length,
                                                 ": must be a multiple of 2 * cp_size = ", pieces,
                                                 "; ", nearest));
}

std::array<PositionRange, 2> PiecesOf(int cp_size, int cp_rank, int sequence_length) {
  if (cp_size == 1) return {{{0, sequence_length}, {sequence_length, 0}}};
  const int piece = sequence_length / (2 * cp_size);
  return {{{cp_rank * piece, piece}, {(2 * cp_size - 1 - cp_rank) * piece, piece}}};
}

std::vector<int32_t> PositionsOf(int cp_size, int cp_rank, int sequence_length) {
  std::vector<int32_t> positions;
  positions.reserve(sequence_length / cp_size);
  for (const PositionRange& range : PiecesOf(cp_size, cp_rank, sequence_length)) {
    for (int i = range.first; i < range.end(); ++i) positions.push_back(i);
  }
  return positions;
}

}  // namespace tessera::plan
