// Runs every schedule for real over communicators, with the least memory that its list needs.
#include "worker/pipeline_parallel/pipeline_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "plan/pipeline_formulas.h"
#include "worker/pipeline_parallel/pipeline_testing.h"

namespace tessera {
namespace {

using plan::Action;
using plan::ActionKind;
using plan::PipelineSchedule;
using plan::ScheduleOptions;

// Far above what a run takes on a busy machine: only a hang lasts as long.
constexpr absl::Duration kWatchdog = absl::Seconds(20);

std::string Name(const ScheduleOptions& options) {
  return absl::StrCat(PipelineScheduleName(options.schedule), " p=", options.stages,
                      " m=", options.micro_batches, " v=", options.chunks);
}

std::vector<ScheduleOptions> OptionsOf(int p) {
  std::vector<ScheduleOptions> all;
  for (PipelineSchedule schedule : plan::kPipelineSchedules) {
    for (int v : {1, 2, 3}) {
      if ((v > 1) != (schedule == PipelineSchedule::kInterleaved1f1b)) continue;
      if (v > 1 && p == 1) continue;  // plan/layout_check.h refuses it
      for (int m : {1, 2, 3, 5, 8, 16}) all.push_back({schedule, p, m, v});
    }
  }
  return all;
}

std::vector<int> PeakSlots(const plan::StageActions& actions, int chunks) {
  std::vector<int> slots;
  for (int chunk = 0; chunk < chunks; ++chunk) slots.push_back(PeakMicroBatches(actions, chunk));
  return slots;
}

absl::Status NeverStop() { return absl::OkStatus(); }

absl::Status CheckMeasured(const plan::StageActions& actions,
                           const std::vector<MeasuredAction>& measured) {
  if (measured.size() != actions.size()) return absl::InternalError("not all is measured");
  for (size_t i = 0; i < actions.size(); ++i) {
    const MeasuredAction& each = measured[i];
    const bool is_after = i == 0 || measured[i - 1].end <= each.begin;
    if (each.action == actions[i] && is_after && each.begin <= each.end) continue;
    return absl::InternalError(absl::StrCat("measured number ", i, " is wrong"));
  }
  return absl::OkStatus();
}

// One training or forward-only run of one rank.
absl::Status RunOnce(const ScheduleOptions& options, bool is_training, int64_t run,
                     PipelineRank& rank) {
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<plan::StageActions> lists,
      is_training ? plan::MakeSchedule(options) : plan::MakeForwardSchedule(options));
  const plan::StageActions& actions = lists[rank.pp_rank];
  SyntheticStage stage({.schedule = options,
                        .pp_rank = rank.pp_rank,
                        .is_training = is_training,
                        .slots = PeakSlots(actions, options.chunks),
                        .run = run},
                       rank.device, rank.stream);
  PipelineRunner runner(actions, rank.group);
  std::vector<MeasuredAction> measured;
  TESSERA_RETURN_IF_ERROR(runner.Run(stage, NeverStop, &measured, rank.stream));
  TESSERA_RETURN_IF_ERROR(stage.CheckEnd());
  return CheckMeasured(actions, measured);
}

class PipelineRunnerTest : public testing::TestWithParam<int> {};

// All runs share one group, so that a message too many would show in the run after. Ranks go from
// run to run without waiting for each other.
TEST_P(PipelineRunnerTest, EveryScheduleEndsWithTheRightDataInTheLeastMemory) {
  const int p = GetParam();
  const std::vector<ScheduleOptions> all = OptionsOf(p);
  const std::vector<absl::Status> statuses =
      RunPipelineRanks(p, kWatchdog, [&](PipelineRank& rank) -> absl::Status {
        int64_t run = 0;
        for (const ScheduleOptions& options : all) {
          for (const bool is_training : {true, false}) {
            const absl::Status status = RunOnce(options, is_training, ++run, rank);
            if (status.ok()) continue;
            return absl::Status(
                status.code(), absl::StrCat(Name(options), is_training ? "" : " forward only", ": ",
                                            status.message()));
          }
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Stages, PipelineRunnerTest, testing::Range(1, 9),
                         [](const auto& info) { return absl::StrCat("P", info.param); });

// A stage's slots are the activations that the ledger and the formulas speak of.
TEST(PeakMicroBatches, IsTheFormula) {
  for (int p = 1; p <= 8; ++p) {
    for (const ScheduleOptions& options : OptionsOf(p)) {
      const auto lists = plan::MakeSchedule(options);
      for (int pp_rank = 0; pp_rank < p; ++pp_rank) {
        const int formula = plan::PeakInFlightForWeightsFormula(options, pp_rank);
        int sum = 0;
        for (int slots : PeakSlots((*lists)[pp_rank], options.chunks)) sum += slots;
        SCOPED_TRACE(absl::StrCat(Name(options), " pp_rank ", pp_rank));
        if (options.chunks == 1) {
          EXPECT_EQ(sum, formula);
        } else {
          // Chunks have their peaks at different times, and each has memory of its own.
          EXPECT_GE(sum, std::min(formula, options.micro_batches));
          EXPECT_LE(sum, options.chunks * std::min(formula, options.micro_batches));
        }
      }
    }
  }
}

constexpr ScheduleOptions kFour{PipelineSchedule::k1f1b, 4, 8, 1};

// Runs kFour with one rank's stage and poll as given; all others end because the group does.
std::vector<absl::Status> RunFour(
    const std::function<void(SyntheticStage::Options&)>& change,
    const std::function<absl::Status(const PipelineRank&, int calls)>& before_compute,
    std::vector<int>* computations) {
  computations->assign(kFour.stages, 0);
  return RunPipelineRanks(kFour.stages, kWatchdog, [&](PipelineRank& rank) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto lists, plan::MakeSchedule(kFour));
    SyntheticStage::Options options;
    options.schedule = kFour;
    options.pp_rank = rank.pp_rank;
    options.slots = PeakSlots(lists[rank.pp_rank], 1);
    change(options);
    SyntheticStage stage(options, rank.device, rank.stream);
    PipelineRunner runner(lists[rank.pp_rank], rank.group);
    int calls = 0;
    const absl::Status status = runner.Run(
        stage, [&] { return before_compute(rank, ++calls); }, nullptr, rank.stream);
    (*computations)[rank.pp_rank] = stage.computations();
    return status;
  });
}

TEST(PipelineErrors, OfComputePassThroughAndEndTheRun) {
  const absl::Status planned = absl::DataLossError("planned");
  std::vector<int> computations;
  const std::vector<absl::Status> statuses = RunFour(
      [&](SyntheticStage::Options& options) {
        if (options.pp_rank == 2) options.fails_at = Action{ActionKind::kBackward, 0, 3, -1};
        options.failure = planned;
      },
      [](const PipelineRank&, int) { return absl::OkStatus(); }, &computations);
  EXPECT_EQ(statuses[2], planned);
  EXPECT_EQ(computations[2], 5 + 3);  // stage 2 is one forward ahead of its backward
  for (int rank : {0, 1, 3}) {
    EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "planned")) << statuses[rank];
  }
}

TEST(PipelineErrors, OfThePollPassThroughAndEndTheRun) {
  const absl::Status planned = absl::CancelledError("planned");
  std::vector<int> computations;
  const std::vector<absl::Status> statuses =
      RunFour([](SyntheticStage::Options&) {},
              [&](const PipelineRank& rank, int calls) {
                return rank.pp_rank == 1 && calls == 6 ? planned : absl::OkStatus();
              },
              &computations);
  EXPECT_EQ(statuses[1], planned);
  EXPECT_EQ(computations[1], 5);
  for (int rank : {0, 2, 3}) {
    EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "planned")) << statuses[rank];
    EXPECT_LT(computations[rank], 2 * kFour.micro_batches);
  }
}

// Of the communicator: its error says where the stage stood.
TEST(PipelineErrors, OfTheGroupPassThrough) {
  std::vector<int> computations;
  const std::vector<absl::Status> statuses =
      RunFour([](SyntheticStage::Options&) {},
              [&](const PipelineRank& rank, int calls) {
                if (rank.pp_rank == 3 && calls == 4) rank.group.Abort(absl::AbortedError("enough"));
                return absl::OkStatus();
              },
              &computations);
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "enough")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "group pp")) << status;
  }
}

// A message on its way holds up neither the error nor the rank that would receive it: the peer here
// waits for something else.
TEST(PipelineErrors, DoNotWaitForMessagesOnTheirWay) {
  const ScheduleOptions options{PipelineSchedule::kGpipe, 2, 2, 1};
  const std::vector<absl::Status> statuses =
      RunPipelineRanks(2, kWatchdog, [&](PipelineRank& rank) -> absl::Status {
        if (rank.pp_rank == 1) return rank.group.Barrier(rank.stream);
        TESSERA_ASSIGN_OR_RETURN(const auto lists, plan::MakeSchedule(options));
        SyntheticStage stage({.schedule = options,
                              .slots = {2},
                              .fails_at = Action{ActionKind::kForward, 0, 1, -1},
                              .failure = absl::DataLossError("planned")},
                             rank.device, rank.stream);
        PipelineRunner runner(lists[0], rank.group);
        return runner.Run(stage, NeverStop, nullptr, rank.stream);
      });
  EXPECT_EQ(statuses[0], absl::DataLossError("planned"));
  EXPECT_TRUE(absl::IsAborted(statuses[1])) << statuses[1];  // not DEADLINE_EXCEEDED
  EXPECT_TRUE(absl::StrContains(statuses[1].message(), "workers/w0 failed: planned"))
      << statuses[1];
}

TEST(PipelineErrors, TooFewSlotsAreNamed) {
  std::vector<int> computations;
  const std::vector<absl::Status> statuses = RunFour(
      [](SyntheticStage::Options& options) {
        if (options.pp_rank == 0) options.slots = {3};
      },
      [](const PipelineRank&, int) { return absl::OkStatus(); }, &computations);
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInternal) << statuses[0];
  EXPECT_TRUE(absl::StrContains(statuses[0].message(), "memory for 3 micro-batches"))
      << statuses[0];
}

}  // namespace
}  // namespace tessera
