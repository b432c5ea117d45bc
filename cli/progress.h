// Live progress of a job on stderr: one redrawn line on a terminal, else one line a change.
#ifndef TESSERA_CLI_PROGRESS_H_
#define TESSERA_CLI_PROGRESS_H_

#include <string>

#include "absl/time/time.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// Not thread-safe.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(bool terminal) : terminal_(terminal) {}
  // Ends the redrawn line.
  ~ProgressPrinter();
  void Show(const v1::TrainingJob& job);

 private:
  const bool terminal_;
  bool line_open_ = false;
  v1::JobState last_state_ = v1::JOB_STATE_UNSPECIFIED;
  double last_validation_ = -1;
  absl::Time last_line_;
};

// stderr is a terminal that can redraw a line.
bool StderrIsTerminal();

}  // namespace tessera

#endif  // TESSERA_CLI_PROGRESS_H_
