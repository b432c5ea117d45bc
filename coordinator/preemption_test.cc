#include "coordinator/preemption.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

// With `workers` workers of so many bytes each.
PreemptibleJob Job(const std::string& name, int priority, int64_t created, int workers,
                   int64_t bytes = 10) {
  PreemptibleJob job{"trainingJobs/" + name, priority, created, {}};
  for (int i = 0; i < workers; ++i) {
    job.workers.push_back({"workers/" + name + std::to_string(i), "h", {.device = bytes}});
  }
  return job;
}

TEST(Preemption, TakesTheFewestOfTheLowestPriority) {
  struct Case {
    const char* name;
    int ranks;
    int64_t needed;  // bytes of each rank
    int free;        // idle workers of 10 bytes
    std::vector<PreemptibleJob> jobs;
    std::optional<std::vector<size_t>> chosen;
  };
  const Case cases[] = {
      {"nothing_is_running", 1, 10, 0, {}, std::nullopt},
      {"free_ones_are_enough", 1, 10, 1, {Job("a", 0, 1, 1)}, {{}}},
      {"one", 1, 10, 0, {Job("a", 0, 1, 1)}, {{0}}},
      {"not_enough", 3, 10, 1, {Job("a", 0, 1, 1)}, std::nullopt},
      {"with_the_free_ones", 2, 10, 1, {Job("a", 0, 1, 1), Job("b", 0, 2, 1)}, {{1}}},
      {"lower_priority", 1, 10, 0, {Job("a", 2, 1, 1), Job("b", 1, 2, 1)}, {{1}}},
      {"youngest", 1, 10, 0, {Job("a", 0, 1, 1), Job("b", 0, 3, 1), Job("c", 0, 2, 1)}, {{1}}},
      {"fewest", 2, 10, 0, {Job("a", 0, 1, 2), Job("b", 0, 3, 1), Job("c", 0, 2, 1)}, {{0}}},
      // Two of priority 0 rather than one of priority 1.
      {"low_priorities_before_few",
       2,
       10,
       0,
       {Job("a", 1, 1, 2), Job("b", 0, 3, 1), Job("c", 0, 2, 1)},
       {{1, 2}}},
      // The one of priority 1 is enough by itself, and the others are not.
      {"nobody_in_vain", 2, 10, 0, {Job("a", 1, 1, 2), Job("b", 0, 3, 1)}, {{0}}},
      {"large_enough", 1, 20, 1, {Job("a", 0, 1, 4), Job("b", 1, 2, 1, 20)}, {{1}}},
      {"several_priorities",
       3,
       10,
       0,
       {Job("a", 5, 1, 1), Job("b", 3, 2, 1), Job("c", 1, 3, 1), Job("d", 7, 4, 9)},
       {{0, 1, 2}}},
  };
  for (const Case& c : cases) {
    std::vector<Candidate> free;
    for (int i = 0; i < c.free; ++i) {
      free.push_back({"workers/free" + std::to_string(i), "h", {.device = 10}});
    }
    const plan::MeshSize mesh = {.dp = c.ranks, .cp = 1, .pp = 1, .tp = 1};
    EXPECT_EQ(
        ChoosePreempted(mesh, std::vector<TierBytes>(c.ranks, {.device = c.needed}), free, c.jobs),
        c.chosen)
        << c.name;
  }
}

// More choices than are tried: still enough, and none too many.
TEST(Preemption, ManyJobsAreCutShort) {
  std::vector<PreemptibleJob> jobs;
  for (int i = 0; i < 60; ++i) jobs.push_back(Job(std::to_string(i), i % 3, i, 1));
  const plan::MeshSize mesh = {.dp = 30, .cp = 1, .pp = 1, .tp = 1};
  const auto chosen = ChoosePreempted(mesh, std::vector<TierBytes>(30, {.device = 10}), {}, jobs);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->size(), 30u);
  for (const size_t job : *chosen) EXPECT_LT(jobs[job].priority, 2);
}

}  // namespace
}  // namespace tessera
