#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "cli/render.h"

namespace tessera {
namespace {
// Without a terminal: transitions, validations, and at least one line in this time.
constexpr absl::Duration kQuiet = absl::Seconds(10);
}  // namespace

ProgressPrinter::~ProgressPrinter() {
  if (line_open_) fputs("\n", stderr);
}

void ProgressPrinter::Show(const v1::TrainingJob& job) {
  const std::string line = ProgressLine(job);
  if (terminal_) {
    fprintf(stderr, "\r%s\x1b[K", line.c_str());
    line_open_ = true;
    return;
  }
  const v1::JobProgress& progress = job.status().progress();
  const bool validated =
      progress.has_validation_loss() && progress.validation_loss() != last_validation_;
  if (job.status().state() == last_state_ && !validated && absl::Now() - last_line_ < kQuiet) {
    return;
  }
  last_state_ = job.status().state();
  last_validation_ = progress.validation_loss();
  last_line_ = absl::Now();
  fprintf(stderr, "%s\n", line.c_str());
}

bool StderrIsTerminal() {
  const char* term = getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && (term == nullptr || strcmp(term, "dumb") != 0);
}

}  // namespace tessera
