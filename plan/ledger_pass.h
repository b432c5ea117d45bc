// Memory of the tensors of one pass through a rank's layers (worker/model), part by part.
//
// Legend: B sequences of T tokens (this rank's part of each), M = B*T rows, R of them in the norm
// regions (with sequence parallelism M / tp, else M); C channels; N query heads and G kv heads of
// H, F intermediate channels and v token ids of the rank; s bytes of an element.
#ifndef TESSERA_PLAN_LEDGER_PASS_H_
#define TESSERA_PLAN_LEDGER_PASS_H_

#include "plan/ledger_bytes.h"
#include "plan/step_traffic.h"

namespace tessera::plan {

class PassSizes {
 public:
  // shards_rows: as the job's sequence parallelism, where the pass has it.
  PassSizes(const TrafficRequest& job, int64_t batch, int64_t time, bool shards_rows);

  LedgerBytes Norm() const;
  LedgerBytes Attention() const;
  // All else that a layer keeps but its output.
  LedgerBytes InnerLayer() const;
  // (R, C): a layer's input, output or gradient, or a message between stages.
  LedgerBytes Residual(LedgerCategory category = LedgerCategory::kActivations) const;
  // Gradients of a layer's activations, of which the weights' follow; is_kept: later.
  LedgerBytes LayerGradients(bool is_kept) const;
  LedgerBytes Head() const;
  // Shared by all layers: row-parallel sums, rotary table, and with backward its gradients.
  LedgerBytes LayerScratch(bool backward) const;
  LedgerBytes TokenIds() const;  // or targets

  BigSize batch, time, rows, shard_rows;  // B, T, M, R
  BigSize hidden;                         // C
  BigSize heads, kv_heads, head_size;     // N, G, H
  BigSize intermediate, vocab;            // F, v
  BigSize element_bytes;                  // s
  bool shards_rows, is_llama;
  int tp;

 private:
  // Of elements, s bytes each or fp32.
  LedgerBytes Tensor(BigSize elements) const;
  LedgerBytes Fp32(BigSize elements) const;
};

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_PASS_H_
