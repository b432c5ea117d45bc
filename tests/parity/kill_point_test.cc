// A process is killed somewhere in training on a mesh; all others must return within two seconds
// with an error that names the group, the operation and the lost worker, and leave nothing behind.
//
// Ranks are processes over mapped memory; this process is their coordinator. Where the victim dies
// is drawn at random among all that it does in the first steps: at an operation of one of its
// groups, before it starts or when others already see it, and before or inside the computation of a
// micro-batch. TESSERA_LONG_TESTS=1: 52 points, else 8. TESSERA_KILL_SEED repeats a run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/mesh.h"
#include "tests/parity/killed_ranks.h"
#include "tests/parity/mesh_cases.h"

namespace tessera {
namespace {

constexpr int kCountedSteps = 3;
// What the design promises of every rank.
constexpr double kLimitSeconds = 2;

int PointsPerMesh() { return std::getenv("TESSERA_LONG_TESTS") != nullptr ? 13 : 2; }

uint32_t Seed() {
  const char* given = std::getenv("TESSERA_KILL_SEED");
  return given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                          : std::random_device()();
}

std::string PointText(const KillPoint& point) {
  std::string text = absl::StrCat("global_rank ", point.global_rank, " ");
  switch (point.where) {
    case KillPoint::Where::kBeforeOperation:
    case KillPoint::Where::kStartedOperation:
      absl::StrAppend(&text, point.where == KillPoint::Where::kBeforeOperation ? "before" : "in",
                      " ", CollectiveKindName(point.kind), " ", point.nth, " of ",
                      plan::GroupAxisName(plan::kGroupAxes[point.axis]));
      break;
    case KillPoint::Where::kBeforeCompute:
      absl::StrAppend(&text, "before computation ", point.nth);
      break;
    case KillPoint::Where::kInsideCompute:
      absl::StrAppend(&text, point.delay.count(), " us into computation ", point.nth);
      break;
  }
  return absl::StrCat(text, point.is_death_seen ? ", the coordinator sees it" : ", others see it");
}

// What each rank does in the first steps.
struct Counted {
  CommunicatorStats stats[kAxes];
  int64_t polls = 0;
};

std::vector<Counted> Count(const v1::TrainingJobSpec& spec, const JobData& data) {
  v1::TrainingJobSpec few = spec;
  few.set_steps(kCountedSteps);
  ProcessRun run(few, data, {});
  std::vector<Counted> counted(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    run.ExpectExit(r);
    const SharedRanks::Rank& rank = run.shared().ranks[r];
    EXPECT_TRUE(rank.is_ok) << "global_rank " << r << ": " << rank.error.text;
    for (int axis = 0; axis < kAxes; ++axis) counted[r].stats[axis] = rank.stats[axis];
    counted[r].polls = rank.polls;
  }
  run.ExpectNothingLeft();
  return counted;
}

// index: points take turns at how they strike, so that few of them still strike in every way.
KillPoint Draw(const std::vector<Counted>& counted, int index, std::mt19937& random) {
  auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  KillPoint point;
  point.global_rank = static_cast<int>(below(kRanks));
  point.is_death_seen = below(2) == 0;
  point.where = static_cast<KillPoint::Where>(index % 4);
  point.delay = std::chrono::microseconds(below(300));
  const Counted& own = counted[point.global_rank];
  if (point.where >= KillPoint::Where::kBeforeCompute) {
    point.nth = 1 + below(own.polls);
    return point;
  }
  // Kinds of operations in all groups are equally likely, rare ones as well.
  struct Choice {
    int axis, kind;
    int64_t calls;
  };
  std::vector<Choice> choices;
  for (int axis = 0; axis < kAxes; ++axis) {
    for (int kind = 0; kind < kNumCollectiveKinds; ++kind) {
      const int64_t calls = own.stats[axis][kind].calls;
      if (calls > 0) choices.push_back({axis, kind, calls});
    }
  }
  const Choice& choice = choices[below(static_cast<int64_t>(choices.size()))];
  point.axis = choice.axis;
  point.kind = static_cast<CollectiveKind>(choice.kind);
  point.nth = 1 + below(choice.calls);
  return point;
}

// As the coordinator: what it tells the others. Where it sees the death itself it asks them what
// they wait for, as their heartbeats say.
std::string AbortReason(ProcessRun& run, const KillPoint& point) {
  SharedRanks& shared = run.shared();
  std::string found;
  auto look = [&] {
    for (int r = 0; r < kRanks && found.empty(); ++r) {
      SharedRanks::Rank& rank = shared.ranks[r];
      if (r == point.global_rank) continue;
      if (rank.returned_ns > 0) {
        found = absl::StrCat("workers/w", r, " failed: ", rank.error.text);
      } else if (point.is_death_seen && rank.answered == shared.question &&
                 rank.pending.text[0] != 0) {
        found = absl::StrCat("workers/w", point.global_rank, " (global_rank ", point.global_rank,
                             ") is lost; workers/w", r, " waits in ", rank.pending.text);
      }
    }
    if (point.is_death_seen && found.empty()) ++shared.question;
    return !found.empty();
  };
  EXPECT_TRUE(AwaitFor(kHangSeconds, look)) << "nobody notices";
  return found;
}

// Seconds from the kill until the last rank has returned.
double KillAndCheck(const v1::TrainingJobSpec& spec, const JobData& data, const KillPoint& point) {
  ProcessRun run(spec, data, point);
  SharedRanks& shared = run.shared();
  int status = 0;
  const bool is_dead =
      AwaitFor(kHangSeconds, [&] { return run.HasEnded(point.global_rank, &status); });
  EXPECT_TRUE(is_dead) << "the victim does not come to its end";
  if (!is_dead) return 0;
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const std::string reason = AbortReason(run, point);
  shared.abort_reason.Set(reason);
  shared.aborted = true;
  double last_s = 0;
  for (int r = 0; r < kRanks; ++r) {
    if (r == point.global_rank) continue;
    const SharedRanks::Rank& rank = shared.ranks[r];
    SCOPED_TRACE(absl::StrCat("global_rank ", r));
    const bool has_returned = AwaitFor(kHangSeconds, [&] { return rank.returned_ns > 0; });
    EXPECT_TRUE(has_returned) << "does not return";
    if (!has_returned) continue;
    const double delay_s = static_cast<double>(rank.returned_ns - shared.killed_ns) * 1e-9;
    last_s = std::max(last_s, delay_s);
    const std::string error = rank.error.text;
    EXPECT_LT(delay_s, kLimitSeconds) << error;
    EXPECT_FALSE(rank.is_ok);
    EXPECT_TRUE(absl::StartsWith(error, "ABORTED") || absl::StartsWith(error, "UNAVAILABLE"))
        << error;
    EXPECT_TRUE(absl::StrContains(error, absl::StrCat("workers/w", point.global_rank))) << error;
    EXPECT_TRUE(absl::StrContains(error, " in group ")) << error;
    EXPECT_TRUE(absl::StrContains(error, " number ")) << error;
    run.ExpectExit(r);
  }
  run.ExpectNothingLeft();
  return last_s;
}

class KillPoints : public testing::TestWithParam<MeshCase> {};

TEST_P(KillPoints, OthersReturnWithNamesAndLeaveNothing) {
  const MeshCase& row = GetParam();
  const JobData data = MeshData(row);
  v1::TrainingJobSpec spec = MeshSpec(row);
  spec.set_steps(1'000'000);  // nobody comes to the end
  spec.mutable_evaluation()->set_every_steps(1);
  const uint32_t seed = Seed();
  std::cout << "TESSERA_KILL_SEED=" << seed << std::endl;
  std::mt19937 random(seed);
  const std::vector<Counted> counted = Count(spec, data);
  if (HasFailure()) return;
  // Two points a mesh: every other mesh begins with the other half of the ways to strike.
  const int first = row.cp == 2 || row.dp == 2 ? 0 : 2;
  double last_s = 0;
  for (int i = 0; i < PointsPerMesh(); ++i) {
    const KillPoint point = Draw(counted, first + i, random);
    SCOPED_TRACE(PointText(point));
    const double delay_s = KillAndCheck(spec, data, point);
    std::cout << PointText(point) << ": the last returned after " << delay_s << " s" << std::endl;
    last_s = std::max(last_s, delay_s);
    if (HasFailure()) return;
  }
  std::cout << "longest from kill to return: " << last_s << " s" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, KillPoints,
    testing::Values(
        MeshCase{.name = "Cp2Pp2Tp2",
                 .cp = 2,
                 .pp = 2,
                 .tp = 2,
                 .cp_kind = v1::CONTEXT_PARALLEL_KIND_ULYSSES,
                 .micro_batches = 4,
                 .zero_stage = 2},
        MeshCase{.name = "Dp2Pp2Tp2",
                 .dp = 2,
                 .pp = 2,
                 .tp = 2,
                 .sequence_parallel = true,
                 .zero_stage = 3},
        MeshCase{.name = "Pp4Tp2",
                 .pp = 4,
                 .tp = 2,
                 .schedule = v1::PIPELINE_SCHEDULE_1F1B,
                 .micro_batches = 8},
        MeshCase{.name = "Cp4Tp2", .cp = 4, .tp = 2, .llama = true, .sequence_parallel = true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
