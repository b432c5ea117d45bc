#include "plan/sequence_split.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera::plan {
namespace {

TEST(SequenceSplit, ZigzagOfFour) {
  EXPECT_EQ(PositionsOf(2, 0, 8), (std::vector<int32_t>{0, 1, 6, 7}));
  EXPECT_EQ(PositionsOf(2, 1, 8), (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(PiecesOf(2, 0, 8)[1], (PositionRange{6, 2}));
}

TEST(SequenceSplit, OneRankHasTheWholeInOnePiece) {
  ASSERT_TRUE(CheckSequenceSplit(1, 5).ok());
  EXPECT_EQ(PiecesOf(1, 0, 5)[0], (PositionRange{0, 5}));
  EXPECT_EQ(PiecesOf(1, 0, 5)[1], (PositionRange{5, 0}));
  EXPECT_EQ(PositionsOf(1, 0, 5), (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(SequenceSplit, CoversOnceWithEqualCausalWork) {
  for (int cp_size = 1; cp_size <= 8; ++cp_size) {
    const int length = 6 * cp_size;
    ASSERT_TRUE(CheckSequenceSplit(cp_size, length).ok());
    std::set<int32_t> seen;
    std::set<int64_t> work;  // pairs of a query and the keys before it
    for (int cp_rank = 0; cp_rank < cp_size; ++cp_rank) {
      int64_t pairs = 0;
      for (int32_t position : PositionsOf(cp_size, cp_rank, length)) {
        EXPECT_TRUE(seen.insert(position).second);
        pairs += position + 1;
      }
      work.insert(pairs);
    }
    EXPECT_EQ(static_cast<int>(seen.size()), length);
    EXPECT_EQ(work.size(), 1U);
  }
}

TEST(SequenceSplit, ErrorsNameTheNearestLengths) {
  EXPECT_EQ(CheckSequenceSplit(4, 10).message(),
            "sequence_length: 10: must be a multiple of 2 * cp_size = 8; the nearest are 8 and 16");
  EXPECT_EQ(CheckSequenceSplit(4, 7).message(),
            "sequence_length: 7: must be a multiple of 2 * cp_size = 8; the least is 8");
  EXPECT_EQ(CheckSequenceSplit(0, 7).message(), "cp_size: 0: must be at least 1");
  EXPECT_EQ(CheckSequenceSplit(1, 0).message(), "sequence_length: 0: must be at least 1");
  EXPECT_FALSE(CheckSequenceSplit(1 << 30, 8).ok());
}

}  // namespace
}  // namespace tessera::plan
