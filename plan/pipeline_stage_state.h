// What a simulated stage has at hand, so that lists that do not fit together are refused.
#ifndef TESSERA_PLAN_PIPELINE_STAGE_STATE_H_
#define TESSERA_PLAN_PIPELINE_STAGE_STATE_H_

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulation.h"

namespace tessera::plan {

// Which computations of a stage are done and which inputs are there. Not thread-safe.
class StageState {
 public:
  // forward_only: no stage computes backward, so nothing is kept for it.
  StageState(int pp_rank, int stages, int chunks, bool forward_only)
      : pp_rank_(pp_rank), stages_(stages), chunks_(chunks), forward_only_(forward_only) {}

  // Runs the stage's next action and notes its peaks in stage. Returns why it cannot run, empty if
  // it can; the caller has checked that a message to receive is there.
  std::string Run(const Action& action, SimulatedStage& stage);

 private:
  using Part = std::pair<int, int>;  // chunk, micro-batch

  static int Count(const std::set<Part>& parts) { return static_cast<int>(parts.size()); }
  static bool TakeInput(std::set<Part>& inputs, const Part& part, bool needs_none) {
    return needs_none || inputs.erase(part) == 1;
  }
  void NoteEarly(SimulatedStage& stage) const {
    if (stages_ == 1) return;
    stage.peak_received_early =
        std::max(stage.peak_received_early, Count(activations_) + Count(gradients_));
  }

  const int pp_rank_;
  const int stages_;
  const int chunks_;
  const bool forward_only_;
  std::set<Part> activations_;  // inputs not yet used
  std::set<Part> gradients_;
  std::set<Part> done_forward_;
  std::set<Part> done_backward_;  // input gradient
  std::set<Part> done_weight_;
};

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_PIPELINE_STAGE_STATE_H_
