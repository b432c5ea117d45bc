#include "cli/render.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cli/exit_code.h"
#include "cli/plot.h"
#include "cli/table.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

TEST(Table, AlignsColumnsWithoutTrailingSpaces) {
  Table table({"NAME", "X"});
  table.Add({"a", "1"});
  table.Add({"longer", "22"});
  EXPECT_EQ(table.ToString(), "NAME    X\na       1\nlonger  22\n");
}

TEST(Plot, PutsExtremesAtTheEdges) {
  const std::string plot = DrawPlot({{'*', "loss", {{0, 4}, {5, 3}, {10, 2}}}}, 11, 3);
  EXPECT_EQ(plot,
            "   4.000 |*          \n"
            "   3.000 |     *     \n"
            "   2.000 |          *\n"
            "         +-----------\n"
            "          0   step 10\n"
            "          * loss\n");
}

TEST(Plot, OnePointAndNonsense) {
  EXPECT_NE(DrawPlot({{'*', "", {{1, 1}}}}, 10, 4), "");
  EXPECT_EQ(DrawPlot({{'*', "", {{1, std::nan("")}}}}, 10, 4), "");
  EXPECT_EQ(DrawPlot({}, 10, 4), "");
}

TEST(Render, Units) {
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1234567), "1.23 MB");
  EXPECT_EQ(HumanSeconds(59), "59s");
  EXPECT_EQ(HumanSeconds(72), "1m12s");
  EXPECT_EQ(HumanSeconds(3 * 3600 + 61), "3h01m");
  EXPECT_EQ(Printable(std::string("a\n\0\xff", 4)), "a\n\\x00\\xff");
}

TEST(Render, ProgressTellsStepLossSpeedAndTimeLeft) {
  v1::TrainingJob job;
  job.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
  v1::JobProgress& progress = *job.mutable_status()->mutable_progress();
  progress.set_step(120);
  progress.set_total_steps(1500);
  progress.set_loss(2.34567);
  progress.set_tokens_per_second(18200);
  progress.set_seconds_left(72);
  EXPECT_EQ(ProgressLine(job), "RUNNING   step 120/1500  loss 2.3457  18.2k tokens/s  1m12s left");
}

TEST(ExitCode, FollowsTheCanonicalCode) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::UnimplementedError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 4);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 5);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 6);
}

TEST(ExitCode, ErrorsTellCodeReasonSubjectAndWhatNext) {
  const std::string text = ErrorText(InvalidField("spec.steps", "0", "must be positive"), "here");
  EXPECT_EQ(text,
            "error: INVALID_ARGUMENT (INVALID_FIELD): spec.steps: 0: must be positive\n"
            "hint: `tessera explain spec.steps` tells what the field may be\n");
}

}  // namespace
}  // namespace tessera
