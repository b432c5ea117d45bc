#include "coordinator/placement.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace tessera {
namespace {

using Workers = std::vector<std::string>;

TEST(Placement, IsAFunctionOfTheIdleWorkers) {
  const plan::MeshSize mesh{.dp = 3, .cp = 1, .pp = 1, .tp = 1};
  EXPECT_EQ(*PlaceRanks(mesh, {{"w2", "h"}, {"w0", "h"}, {"w1", "h"}}),
            (Workers{"w0", "w1", "w2"}));
  EXPECT_EQ(*PlaceRanks(mesh, {{"w1", "h"}, {"w2", "h"}, {"w0", "h"}}),
            (Workers{"w0", "w1", "w2"}));
}

TEST(Placement, FullestHostFirst) {
  const plan::MeshSize mesh{.dp = 2, .cp = 1, .pp = 1, .tp = 1};
  EXPECT_EQ(*PlaceRanks(mesh, {{"a0", "a"}, {"b0", "b"}, {"b1", "b"}}), (Workers{"b0", "b1"}));
}

TEST(Placement, KeepsTpGroupsInsideAHostWhereTheyFit) {
  const plan::MeshSize mesh{.dp = 3, .cp = 1, .pp = 1, .tp = 2};
  std::vector<Candidate> idle;
  for (const char* worker : {"a0", "a1", "a2"}) idle.push_back({worker, "a"});
  for (const char* worker : {"b0", "b1", "b2"}) idle.push_back({worker, "b"});
  const Workers placed = *PlaceRanks(mesh, idle);
  EXPECT_EQ(placed, (Workers{"a0", "a1", "b0", "b1", "a2", "b2"}));  // the last must be split
}

TEST(Placement, AsManyTpGroupsAsFitLieInsideAHost) {
  struct Case {
    const char* name;
    plan::MeshSize mesh;
    std::map<std::string, int> hosts;  // idle workers of each
    int inside;                        // groups that lie in one host
  };
  const Case cases[] = {
      {"even", {.dp = 2, .cp = 1, .pp = 1, .tp = 4}, {{"a", 4}, {"b", 4}}, 2},
      {"uneven", {.dp = 1, .cp = 1, .pp = 3, .tp = 2}, {{"a", 2}, {"b", 4}}, 3},
      {"spare_on_each", {.dp = 3, .cp = 1, .pp = 1, .tp = 4}, {{"a", 5}, {"b", 7}, {"c", 6}}, 3},
      {"spare_before", {.dp = 2, .cp = 1, .pp = 1, .tp = 4}, {{"a", 7}, {"b", 4}}, 2},
      {"small_host_first_by_name", {.dp = 1, .cp = 2, .pp = 1, .tp = 4}, {{"a", 3}, {"b", 9}}, 2},
      {"one_host_is_enough", {.dp = 1, .cp = 1, .pp = 2, .tp = 2}, {{"a", 4}, {"b", 3}}, 2},
      {"last_from_the_rests", {.dp = 3, .cp = 1, .pp = 1, .tp = 2}, {{"a", 3}, {"b", 3}}, 2},
      {"whole_after_smaller_rests",
       {.dp = 1, .cp = 1, .pp = 4, .tp = 3},
       {{"a", 5}, {"b", 4}, {"c", 3}},
       3},
      {"second_must_be_split", {.dp = 2, .cp = 1, .pp = 1, .tp = 4}, {{"a", 3}, {"b", 5}}, 1},
      {"no_host_fits", {.dp = 1, .cp = 1, .pp = 1, .tp = 4}, {{"a", 2}, {"b", 2}}, 0},
  };
  for (const Case& c : cases) {
    std::vector<Candidate> idle;
    std::map<std::string, std::string> host_of;
    for (const auto& [host, workers] : c.hosts) {
      for (int i = 0; i < workers; ++i) {
        idle.push_back({host + std::to_string(i), host});
        host_of[idle.back().worker] = host;
      }
    }
    const Workers placed = *PlaceRanks(c.mesh, idle);
    ASSERT_EQ(static_cast<int>(placed.size()), c.mesh.world_size()) << c.name;
    EXPECT_EQ(std::set<std::string>(placed.begin(), placed.end()).size(), placed.size()) << c.name;
    int inside = 0;
    for (int first = 0; first < c.mesh.world_size(); first += c.mesh.tp) {
      std::set<std::string> hosts;
      for (int rank = first; rank < first + c.mesh.tp; ++rank) hosts.insert(host_of[placed[rank]]);
      inside += hosts.size() == 1 ? 1 : 0;
    }
    EXPECT_EQ(inside, c.inside) << c.name;
  }
}

TEST(Placement, SaysHowManyAreMissing) {
  const absl::Status status =
      PlaceRanks({.dp = 2, .cp = 1, .pp = 1, .tp = 1}, {{"a", "h"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "needs 2 idle workers, 1 are idle");
}

}  // namespace
}  // namespace tessera
