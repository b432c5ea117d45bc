// The buffers that a rank's store of weights and gradients (worker/zero) takes for a while and
// gives back: with zero_stage 3 units' gathered weights, with 2 and 3 their whole gradients, and so
// both of what is offloaded.
// Nothing is computed: who asks for what in which order decides what is held.
#ifndef TESSERA_PLAN_UNIT_BUFFERS_H_
#define TESSERA_PLAN_UNIT_BUFFERS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "plan/ledger.h"
#include "plan/unit_sizes.h"

namespace tessera::plan {

// Follows the calls of worker/model/parameter_store.h, whose names these are, and the queue behind
// them: collectives complete when one waits for them, in the order in which they were started, and
// a unit's whole gradients are given back when their reduction has completed.
class UnitBuffers {
 public:
  // micro_batches: so often each unit's gradients become ready in a step.
  UnitBuffers(const LedgerRequest& request, const std::vector<UnitSize>& units, int micro_batches);

  void AcquireParameters(int unit);
  void ReleaseParameters(int unit);
  void PrefetchParameters(absl::Span<const int> units);
  void AcquireGradients(int unit);
  void GradientsReady(int unit);

  BigSize held_bytes() const { return held_bytes_; }
  BigSize peak_bytes() const { return peak_bytes_; }

 private:
  struct Unit {
    BigSize parameter_bytes, gradient_bytes;  // of the buffers
    BigSize reduced_bytes;                    // of the rank's part of the gradients
    bool is_gathered = false;                 // over the zero group
    bool is_fetched = false;                  // from a tier; neither: its weights are always there
    bool keeps_gradients = false;             // whole
    bool offloads_gradients = false;
    bool has_parameters = false, has_gradients = false, is_fetching = false;
    int users = 0;
    int ready = 0;                        // micro-batches
    int64_t gathering = 0, reducing = 0;  // numbers in the queue
  };
  // A collective of the queue.
  struct Pending {
    int reduced_unit = -1;  // -1: gathers weights
    bool is_first = false;  // reduction of the unit in the step
  };

  void Gather(Unit& unit);
  void Reduce(int unit);
  void FinishReduce(const Pending& pending);
  void FreeGradients(Unit& unit);
  // Number of a collective that is now the last.
  int64_t Start(Pending pending);
  void WaitFor(int64_t number);
  void Take(BigSize bytes);

  const int prefetch_units_;
  const int micro_batches_;
  const bool reduces_each_, defers_reduction_;
  std::vector<Unit> units_;
  std::deque<Pending> pending_;
  int64_t last_ = 0;  // number of pending_.back(), or of the last one that was
  BigSize held_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_UNIT_BUFFERS_H_
