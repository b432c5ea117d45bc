#include "plan/mesh.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace tessera::plan {
namespace {

TEST(Mesh, OrderIsDpCpPpTp) {
  const MeshSize mesh{.dp = 2, .cp = 3, .pp = 5, .tp = 7};
  EXPECT_EQ(GlobalRank(mesh, 1, 2, 4, 6), mesh.world_size() - 1);
  EXPECT_EQ(GlobalRank(mesh, 0, 0, 0, 1), 1);
  EXPECT_EQ(GlobalRank(mesh, 0, 0, 1, 0), 7);
  EXPECT_EQ(GlobalRank(mesh, 0, 1, 0, 0), 35);
  EXPECT_EQ(GlobalRank(mesh, 1, 0, 0, 0), 105);
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  const MeshSize mesh{.dp = 2, .cp = 3, .pp = 4, .tp = 5};
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Coordinates at = CoordinatesOf(mesh, rank);
    EXPECT_EQ(GlobalRank(mesh, at.dp_rank, at.cp_rank, at.pp_rank, at.tp_rank), rank);
  }
}

TEST(Mesh, GroupsOfAnAxisPartitionTheRanks) {
  const MeshSize mesh{.dp = 2, .cp = 2, .pp = 3, .tp = 2};
  for (GroupAxis axis : kGroupAxes) {
    std::map<std::string, std::vector<int>> groups;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const Group group = GroupOf(mesh, rank, axis);
      EXPECT_EQ(group.members[group.group_rank], rank);
      auto [it, added] = groups.emplace(group.name, group.members);
      if (!added) {
        EXPECT_EQ(it->second, group.members);
      }
    }
    std::set<int> seen;
    for (const auto& [name, members] : groups) seen.insert(members.begin(), members.end());
    EXPECT_EQ(static_cast<int>(seen.size()), mesh.world_size()) << GroupAxisName(axis);
  }
}

TEST(Mesh, ZeroIsDpOuterCpInner) {
  const MeshSize mesh{.dp = 2, .cp = 2, .pp = 1, .tp = 2};
  const Group group = GroupOf(mesh, 5, GroupAxis::kZero);
  EXPECT_EQ(group.name, "zero[pp=0,tp=1]");
  EXPECT_EQ(group.members, (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(group.group_rank, 2);
}

TEST(Mesh, RefusesSizesBelowOneAndTooManyRanks) {
  EXPECT_FALSE(CheckMesh({.dp = 0, .cp = 1, .pp = 1, .tp = 1}).ok());
  EXPECT_FALSE(CheckMesh({.dp = 1 << 30, .cp = 1 << 30, .pp = 1 << 30, .tp = 1 << 30}).ok());
  EXPECT_TRUE(CheckMesh({.dp = 65536, .cp = 1, .pp = 1, .tp = 1}).ok());
}

}  // namespace
}  // namespace tessera::plan
