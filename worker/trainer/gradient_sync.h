// Between the last backward of a step and the optimizer: gradients of parameters that several ranks
// of a model hold become whole.
#ifndef TESSERA_WORKER_TRAINER_GRADIENT_SYNC_H_
#define TESSERA_WORKER_TRAINER_GRADIENT_SYNC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/model/model_part.h"
#include "worker/zero/zero_store.h"

namespace tessera {

struct GradientSyncOptions {
  ModelPart part;
  int64_t kv_heads = 1;  // of the whole model
  // Compare what should be equal on all tp ranks.
  bool check_replicated = false;
};

// Used by one thread; all ranks of the tp and pp groups call Run together. Store, groups and device
// outlive it. Groups of one move nothing.
class GradientSync {
 public:
  // RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(const GradientSyncOptions& options,
                                                              ZeroStore& store, Communicator& tp,
                                                              Communicator& pp, Device& device);

  // Sums over tp what each of its ranks has a part of (sequence-parallel norms, shared kv heads);
  // over the first and the last stage the tied embedding's. INTERNAL, naming the parameter: ranks
  // disagree on a gradient that should be equal (check_replicated).
  absl::Status Run(int64_t step, Stream& stream);

 private:
  GradientSync(const GradientSyncOptions& options, ZeroStore& store, Communicator& tp,
               Communicator& pp, Device& device)
      : options_(options), store_(store), tp_(tp), pp_(pp), device_(device) {}
  void Collect();
  // Room for `size` elements of the gradients' type.
  Tensor Scratch(int64_t size) const;
  absl::Status SumReplicas(const Tensor& gradient, Stream& stream);
  absl::Status SumTied(Stream& stream);
  absl::Status CheckReplicated(int64_t step, Stream& stream);

  const GradientSyncOptions options_;
  ZeroStore& store_;
  Communicator& tp_;
  Communicator& pp_;
  Device& device_;
  std::vector<ParameterId> partial_, replica_partial_, replicated_;
  bool has_tied_ = false;
  ParameterId tied_;  // where has_tied_: the embedding, or the head's copy of it
  int64_t scratch_elements_ = 0;
  DeviceBuffer scratch_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_GRADIENT_SYNC_H_
