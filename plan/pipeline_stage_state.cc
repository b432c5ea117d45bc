#include "plan/pipeline_stage_state.h"

namespace tessera::plan {

std::string StageState::Run(const Action& action, SimulatedStage& stage) {
  const Part part{action.chunk, action.micro_batch};
  switch (action.kind) {
    case ActionKind::kForward: {
      if (done_forward_.contains(part)) return "repeated";
      if (!TakeInput(activations_, part, pp_rank_ == 0 && part.first == 0)) return "no input";
      NoteEarly(stage);
      done_forward_.insert(part);
      if (stages_ == 1) activations_.insert({part.first + 1, part.second});
      const int in_flight = forward_only_ ? 1 : Count(done_forward_) - Count(done_backward_);
      stage.peak_in_flight = std::max(stage.peak_in_flight, in_flight);
      const int for_weights = forward_only_ ? 1 : Count(done_forward_) - Count(done_weight_);
      stage.peak_in_flight_for_weights = std::max(stage.peak_in_flight_for_weights, for_weights);
      return "";
    }
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput: {
      if (done_backward_.contains(part)) return "repeated";
      if (!done_forward_.contains(part)) return "before its forward";
      const bool is_loss = pp_rank_ == stages_ - 1 && part.first == chunks_ - 1;
      if (!TakeInput(gradients_, part, is_loss)) return "no gradient";
      NoteEarly(stage);
      done_backward_.insert(part);
      if (action.kind == ActionKind::kBackward) done_weight_.insert(part);
      if (stages_ == 1) gradients_.insert({part.first - 1, part.second});
      return "";
    }
    case ActionKind::kBackwardWeight:
      if (!done_backward_.contains(part)) return "before its input gradient";
      NoteEarly(stage);
      return done_weight_.insert(part).second ? "" : "repeated";
    case ActionKind::kRecvActivation:
      activations_.insert(part);
      return "";
    case ActionKind::kRecvGradient:
      gradients_.insert(part);
      return "";
    case ActionKind::kSendActivation:
      return done_forward_.contains(part) ? "" : "before its forward";
    case ActionKind::kSendGradient:
      return done_backward_.contains(part) ? "" : "before its backward";
  }
  return "unknown kind";
}

}  // namespace tessera::plan
