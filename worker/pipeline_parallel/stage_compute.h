// What a pipeline runner drives: the computing side of one rank's stage.
//
// Legend: R rows (tokens) of a micro-batch in the norm regions of this rank, C channels.
#ifndef TESSERA_WORKER_PIPELINE_PARALLEL_STAGE_COMPUTE_H_
#define TESSERA_WORKER_PIPELINE_PARALLEL_STAGE_COMPUTE_H_

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "plan/pipeline_schedule.h"

namespace tessera {

// Used by one thread. Chunks are this rank's, counted from 0.
class StageCompute {
 public:
  virtual ~StageCompute() = default;

  // Micro-batches of the chunk that there is memory for at once.
  virtual int num_slots(int chunk) const = 0;
  // Gives the micro-batch memory, until Release. REQUIRES: fewer than num_slots have some.
  virtual void Assign(int chunk, int micro_batch) = 0;
  virtual void Release(int chunk, int micro_batch) = 0;

  // A forward, backward, backward_input or backward_weight.
  virtual absl::Status Compute(const plan::Action& action, Stream& stream) = 0;

  // (R, C) each, of a micro-batch that has memory: where an activation is received and from where
  // it is sent on, and where the gradient of the output is received; after its backward the
  // gradient of the input is there.
  virtual Tensor Input(int chunk, int micro_batch) const = 0;
  virtual Tensor Output(int chunk, int micro_batch) const = 0;
  virtual Tensor Gradient(int chunk, int micro_batch) const = 0;

  // (R, C) each: messages whose micro-batch gives its memory back before they have arrived. Two are
  // what a schedule needs at most between a pair of ranks (plan/pipeline_schedule.h).
  static constexpr int kSendBuffers = 2;
  // REQUIRES: the pipeline has more than one stage.
  virtual Tensor SendBuffer(int index) const = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_PIPELINE_PARALLEL_STAGE_COMPUTE_H_
