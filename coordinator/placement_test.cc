#include "coordinator/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace tessera {
namespace {

using Workers = std::vector<std::string>;

// "worker host", then bytes of the device, of the host and on nvme, as many as there are.
std::vector<Candidate> Idle(const std::vector<std::string>& texts) {
  std::vector<Candidate> idle;
  for (const std::string& text : texts) {
    const std::vector<std::string> parts = absl::StrSplit(text, ' ');
    auto bytes = [&](size_t part) { return part < parts.size() ? std::stoll(parts[part]) : 0; };
    idle.push_back({parts[0], parts[1], {bytes(2), bytes(3), bytes(4)}});
  }
  return idle;
}

// Of devices alone.
std::vector<TierBytes> Devices(const std::vector<int64_t>& bytes) {
  std::vector<TierBytes> devices;
  for (const int64_t each : bytes) devices.push_back({.device = each});
  return devices;
}

// Of ranks that need nothing.
absl::StatusOr<Workers> PlaceAny(const plan::MeshSize& mesh, const std::vector<Candidate>& idle) {
  return PlaceRanks(mesh, std::vector<TierBytes>(mesh.world_size()), idle);
}

TEST(Placement, IsAFunctionOfTheIdleWorkers) {
  const plan::MeshSize mesh{.dp = 3, .cp = 1, .pp = 1, .tp = 1};
  EXPECT_EQ(*PlaceAny(mesh, Idle({"w2 h", "w0 h", "w1 h"})), (Workers{"w0", "w1", "w2"}));
  EXPECT_EQ(*PlaceAny(mesh, Idle({"w1 h", "w2 h", "w0 h"})), (Workers{"w0", "w1", "w2"}));
}

TEST(Placement, FullestHostFirst) {
  const plan::MeshSize mesh{.dp = 2, .cp = 1, .pp = 1, .tp = 1};
  EXPECT_EQ(*PlaceAny(mesh, Idle({"a0 a", "b0 b", "b1 b"})), (Workers{"b0", "b1"}));
}

TEST(Placement, KeepsTpGroupsInsideAHostWhereTheyFit) {
  const plan::MeshSize mesh{.dp = 3, .cp = 1, .pp = 1, .tp = 2};
  std::vector<Candidate> idle;
  for (const char* worker : {"a0", "a1", "a2"}) idle.push_back({worker, "a", {}});
  for (const char* worker : {"b0", "b1", "b2"}) idle.push_back({worker, "b", {}});
  const Workers placed = *PlaceAny(mesh, idle);
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
        idle.push_back({host + std::to_string(i), host, {}});
        host_of[idle.back().worker] = host;
      }
    }
    const Workers placed = *PlaceAny(c.mesh, idle);
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
      PlaceAny({.dp = 2, .cp = 1, .pp = 1, .tp = 1}, Idle({"a h"})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "needs 2 idle workers, 1 are idle");
}

TEST(Placement, RanksGetWorkersThatAreLargeEnough) {
  struct Case {
    const char* name;
    plan::MeshSize mesh;
    std::vector<int64_t> needed;    // by rank
    std::vector<std::string> idle;  // "worker host bytes"
    Workers placed;                 // empty: none
  };
  const plan::MeshSize two = {.dp = 2, .cp = 1, .pp = 1, .tp = 1};
  const plan::MeshSize pairs = {.dp = 1, .cp = 1, .pp = 2, .tp = 2};
  const Case cases[] = {
      {"exactly", two, {5, 5}, {"a h 5", "b h 5"}, {"a", "b"}},
      {"one_byte_too_few", two, {5, 5}, {"a h 5", "b h 4"}, {}},
      {"small_ones_are_left_out", two, {5, 5}, {"a h 4", "b h 5", "c h 9"}, {"b", "c"}},
      {"the_larger_for_the_rank_that_needs_more", two, {9, 5}, {"a h 5", "b h 9"}, {"b", "a"}},
      {"a_fuller_host_does_not_help",
       two,
       {5, 5},
       {"a0 a 4", "a1 a 4", "a2 a 4", "b0 b 5", "c0 c 5"},
       {"b0", "c0"}},
      {"not_the_last_large_one_for_a_small_rank", two, {5, 9}, {"a h 9", "b h 5"}, {"b", "a"}},
      // Stage 0 needs more and is placed first, on the host that has it.
      {"a_host_for_each_stage",
       pairs,
       {9, 9, 5, 5},
       {"a0 a 5", "a1 a 5", "b0 b 9", "b1 b 9"},
       {"b0", "b1", "a0", "a1"}},
      // Were it the group of stage 1 that takes host b, rank 0 had no worker.
      {"leaves_enough_for_others",
       pairs,
       {9, 9, 5, 5},
       {"a0 a 9", "b0 b 9", "b1 b 5", "a1 a 5"},
       {"a0", "b0", "a1", "b1"}},
      // Both are enough: rank 0 is first, whatever it needs.
      {"in_order_where_all_are_large", two, {5, 9}, {"a h 9", "b h 9"}, {"a", "b"}},
      {"a_rank_that_needs_more_than_its_group",
       pairs,
       {9, 5, 5, 5},
       {"a0 a 5", "a1 a 5", "b0 b 5", "b1 b 9"},
       {"b1", "b0", "a0", "a1"}},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Workers> placed = PlaceRanks(c.mesh, Devices(c.needed), Idle(c.idle));
    if (c.placed.empty()) {
      EXPECT_EQ(placed.status().code(), absl::StatusCode::kResourceExhausted) << c.name;
      continue;
    }
    ASSERT_TRUE(placed.ok()) << c.name << placed.status();
    EXPECT_EQ(*placed, c.placed) << c.name;
  }
}

// Whatever the sizes: placed if and only if the k-th largest need is at most the k-th largest
// device, and then every rank has enough.
TEST(Placement, PlacesWheneverItCanBeDone) {
  uint64_t random = 1;
  auto next = [&](int below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((random >> 33) % below);
  };
  int placed_cases = 0;
  for (int i = 0; i < 2000; ++i) {
    const plan::MeshSize mesh = {.dp = 1 + next(2), .cp = 1, .pp = 1 + next(3), .tp = 1 + next(3)};
    std::vector<int64_t> needed, memory;
    for (int rank = 0; rank < mesh.world_size(); ++rank) needed.push_back(next(6));
    std::vector<Candidate> idle;
    std::map<std::string, int64_t> memory_of;
    for (int worker = 0; worker < mesh.world_size() + next(4); ++worker) {
      idle.push_back({std::to_string(worker), std::to_string(next(3)), {.device = 2 + next(6)}});
      memory.push_back(idle.back().has.device);
      memory_of[idle.back().worker] = idle.back().has.device;
    }
    const absl::StatusOr<Workers> placed = PlaceRanks(mesh, Devices(needed), idle);
    ASSERT_EQ(placed.ok(), !FindShortage(Devices(needed), Devices(memory)).has_value()) << i;
    if (!placed.ok()) continue;
    ++placed_cases;
    EXPECT_EQ(std::set<std::string>(placed->begin(), placed->end()).size(), needed.size()) << i;
    for (size_t rank = 0; rank < needed.size(); ++rank) {
      EXPECT_GE(memory_of[(*placed)[rank]], needed[rank]) << i;
    }
  }
  EXPECT_GT(placed_cases, 200);
  EXPECT_LT(placed_cases, 1900);
}

TEST(Placement, AShortageNamesTheFirstRankWithoutAWorker) {
  const MemoryShortage shortage = *FindShortage(Devices({3, 7, 7, 5}), Devices({9, 6, 6, 6}));
  EXPECT_EQ(shortage.tier, plan::Tier::kDevice);
  EXPECT_FALSE(shortage.is_combined);
  EXPECT_EQ(shortage.global_rank, 2);
  EXPECT_EQ(shortage.needed_bytes, 7);
  EXPECT_EQ(shortage.ranks, 2);
  EXPECT_EQ(shortage.workers, 1);
  EXPECT_EQ(shortage.largest_bytes, 9);
  EXPECT_FALSE(FindShortage(Devices({3, 7, 7, 5}), Devices({7, 5, 3, 7})).has_value());
}

TEST(Placement, AWorkerMustHaveEnoughOfEveryTier) {
  struct Case {
    const char* name;
    std::vector<TierBytes> needs;
    std::vector<std::string> idle;
    Workers placed;       // empty: none
    plan::Tier short_of;  // where none
    int needed, workers, largest;
    bool is_combined;
  };
  constexpr auto kHost = plan::Tier::kHost;
  constexpr auto kNvme = plan::Tier::kNvme;
  const Case cases[] = {
      {"enough", {{5, 2, 3}}, {"a h 5 2 3"}, {"a"}, {}, 0, 0, 0, false},
      {"host_short", {{5, 2, 3}}, {"a h 9 1 9"}, {}, kHost, 2, 0, 1, false},
      {"nvme_short", {{5, 2, 3}}, {"a h 9 9 2", "b h 9 9 1"}, {}, kNvme, 3, 0, 2, false},
      {"none_has_both",
       {{5, 2, 0}},
       {"a h 5 0", "b h 0 9"},
       {},
       plan::Tier::kDevice,
       5,
       0,
       5,
       true},
      {"one_for_two",
       {{5, 2, 0}, {5, 2, 0}},
       {"a h 5 2", "b h 5 1", "c h 4 9"},
       {},
       plan::Tier::kDevice,
       5,
       1,
       5,
       true},
      // The rank that needs less of the device is the only one that can do with b's host memory.
      {"moves_an_earlier_rank",
       {{4, 9, 0}, {5, 1, 0}},
       {"a h 5 9", "b h 6 1"},
       {"a", "b"},
       {},
       0,
       0,
       0,
       false},
      {"not_the_smallest_device",
       {{1, 0, 5}, {1, 0, 1}},
       {"a h 1 0 5", "b h 1 0 1"},
       {"a", "b"},
       {},
       0,
       0,
       0,
       false},
  };
  for (const Case& c : cases) {
    const plan::MeshSize mesh = {.dp = static_cast<int>(c.needs.size()), .cp = 1, .pp = 1, .tp = 1};
    const std::vector<Candidate> idle = Idle(c.idle);
    std::vector<TierBytes> has;
    for (const Candidate& each : idle) has.push_back(each.has);
    const absl::StatusOr<Workers> placed = PlaceRanks(mesh, c.needs, idle);
    const std::optional<MemoryShortage> shortage = FindShortage(c.needs, has);
    ASSERT_EQ(placed.ok(), !c.placed.empty()) << c.name << placed.status();
    ASSERT_EQ(shortage.has_value(), c.placed.empty()) << c.name;
    if (placed.ok()) {
      EXPECT_EQ(*placed, c.placed) << c.name;
      continue;
    }
    EXPECT_EQ(shortage->tier, c.short_of) << c.name;
    EXPECT_EQ(shortage->needed_bytes, c.needed) << c.name;
    EXPECT_EQ(shortage->workers, c.workers) << c.name;
    EXPECT_EQ(shortage->largest_bytes, c.largest) << c.name;
    EXPECT_EQ(shortage->is_combined, c.is_combined) << c.name;
  }
}

// What is free on a disk changes by the minute; the placement of equal workers does not.
TEST(Placement, DoesNotFollowTheDisksFreeBytes) {
  const std::vector<TierBytes> needs = {{1, 1, 1}, {1, 1, 1}};
  for (const int64_t free : {8, 9, 10}) {
    const absl::StatusOr<Workers> placed =
        PlaceRanks({.dp = 2}, needs, {{"w0", "h", {4, 4, 9}}, {"w1", "h", {4, 4, free}}});
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_EQ(*placed, (Workers{"w0", "w1"})) << free;
  }
}

// All ways of giving four workers to three ranks are tried.
TEST(Placement, PlacesWheneverItCanBeDoneOnAllTiers) {
  uint64_t random = 7;
  auto next = [&](int below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((random >> 33) % below);
  };
  int placed_cases = 0;
  for (int i = 0; i < 2000; ++i) {
    const plan::MeshSize mesh = {.dp = 3, .cp = 1, .pp = 1, .tp = 1};
    std::vector<TierBytes> needs;
    std::vector<Candidate> idle;
    for (int rank = 0; rank < 3; ++rank) needs.push_back({next(5), next(5), next(5)});
    for (int worker = 0; worker < 4; ++worker) {
      idle.push_back({std::to_string(worker),
                      std::to_string(next(2)),
                      {1 + next(5), 1 + next(5), 1 + next(5)}});
    }
    bool can_be_done = false;
    std::vector<int> order = {0, 1, 2, 3};
    do {
      bool fits = true;
      for (int rank = 0; rank < 3; ++rank) fits = fits && idle[order[rank]].has.covers(needs[rank]);
      can_be_done = can_be_done || fits;
    } while (std::next_permutation(order.begin(), order.end()));
    const absl::StatusOr<Workers> placed = PlaceRanks(mesh, needs, idle);
    ASSERT_EQ(placed.ok(), can_be_done) << i << placed.status();
    if (!placed.ok()) continue;
    ++placed_cases;
    EXPECT_EQ(std::set<std::string>(placed->begin(), placed->end()).size(), 3u) << i;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(idle[std::stoi((*placed)[rank])].has.covers(needs[rank])) << i;
    }
  }
  EXPECT_GT(placed_cases, 200);
  EXPECT_LT(placed_cases, 1900);
}

}  // namespace
}  // namespace tessera
