// Runs the lists of plan/pipeline_schedule.h on paper: proves that they fit together and says how
// long each stage works, waits and what it holds. Also the closed formulas to compare with.
//
// One run stands for every order of arrival: stages are sequential processes that block on FIFO
// channels and never ask whether a message is there, so they form a Kahn process network (Kahn,
// "The semantics of a simple language for parallel programming", 1974). Which messages pass and
// whether all stages end does not depend on timing; costs change times alone. A bounded channel is
// two such channels (messages one way, free slots the other), so this holds for any capacity.
#ifndef TESSERA_PLAN_PIPELINE_SIMULATION_H_
#define TESSERA_PLAN_PIPELINE_SIMULATION_H_

#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/pipeline_schedule.h"

namespace tessera::plan {

// Seconds for one micro-batch through one chunk (a stage has v of them).
struct ChunkCosts {
  double forward_s = 1;
  double backward_input_s = 1;
  double backward_weight_s = 1;  // kBackward costs both
  double send_latency_s = 0;     // from the send until the message can be received
};

inline constexpr int kUnboundedChannel = std::numeric_limits<int>::max();

struct SimulatedSlice {
  Action action;
  double begin_s = 0;
  double end_s = 0;  // a receive: when it has the message; a send: when the channel took it
  int sent_by = -1;  // a receive: index of the send among the slices of action.peer
};

struct SimulatedStage {
  std::vector<SimulatedSlice> slices;  // one for each action, in list order
  double busy_s = 0;                   // computing
  double idle_share = 0;               // 1 - busy_s / total_s

  // Counts of (chunk, micro-batch), each 1/v of a stage's activations. From forward until backward
  // is done; where the gradients are apart, until the input gradient or until the weight gradient
  // is done. Forward-only lists keep nothing for later: 1.
  int peak_in_flight = 0;
  int peak_in_flight_for_weights = 0;
  // Messages received for a later computation than the next, at most.
  int peak_received_early = 0;
};

struct PipelineSimulation {
  std::vector<SimulatedStage> stages;  // by pp_rank
  double total_s = 0;
  double idle_share = 0;  // of all stages together
};

// channel_capacity: how many messages an ordered pair of ranks may have sent and not yet received
// before a send waits; at least 1.
// FAILED_PRECONDITION naming pp_rank and action if the lists do not fit together: deadlock (names
// where every stage stands), a message that is not the one expected, or a computation without its
// input, repeated, or before what it depends on. INVALID_ARGUMENT for a capacity below 1.
absl::StatusOr<PipelineSimulation> SimulatePipeline(absl::Span<const StageActions> stages,
                                                    const ChunkCosts& costs,
                                                    int channel_capacity = kUnboundedChannel);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_PIPELINE_SIMULATION_H_
