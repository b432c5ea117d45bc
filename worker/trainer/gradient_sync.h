// Gradients of parameters that several ranks of a model hold become whole: over tp before a unit is
// reduced over the zero group, between two stages after it.
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

struct GradientSyncGroups {
  Communicator& zero;  // by whose ranks shards are numbered
  Communicator& tp;
  Communicator& pp;
};

// Used by one thread; all ranks of the tp group call SumOverTp, and of the pp group SumTied,
// together. Store, groups and device outlive it. Groups of one move nothing.
class GradientSync {
 public:
  // RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(const GradientSyncOptions& options,
                                                              ZeroStore& store,
                                                              const GradientSyncGroups& groups,
                                                              Device& device);

  // Of a unit's whole gradients, what each tp rank has a part of (sequence-parallel norms, shared
  // kv heads). INTERNAL, naming the parameter: ranks disagree on a gradient that should be equal
  // (check_replicated).
  absl::Status SumOverTp(int64_t step, int unit, Stream& stream);
  // The tied embedding's over the first and the last stage, with the rank that has the same part.
  // Where the store defers its reduction, of whole gradients, after the last backward and before
  // the reduction; else of reduced ones.
  absl::Status SumTied(Stream& stream);

 private:
  GradientSync(const GradientSyncOptions& options, ZeroStore& store,
               const GradientSyncGroups& groups, Device& device)
      : options_(options),
        store_(store),
        zero_(groups.zero),
        tp_(groups.tp),
        pp_(groups.pp),
        device_(device) {}
  void Collect();
  // Room for `size` elements of the gradients' type.
  Tensor Scratch(int64_t size) const;
  absl::Status SumReplicas(const Tensor& gradient, Stream& stream);
  absl::Status CheckReplicated(int64_t step, ParameterId id, Stream& stream);
  // Adds what the other stage's rank has of the tied embedding; own is of TiedRange.
  absl::Status AddPeers(const Tensor& own, Stream& stream);
  // Of the tied embedding's unit, what this rank sums.
  ElementRange TiedRange() const;
  // A parameter's whole gradient on this rank, flat.
  Tensor Gradient(ParameterId id) const;

  const GradientSyncOptions options_;
  ZeroStore& store_;
  const Communicator& zero_;
  Communicator& tp_;
  Communicator& pp_;
  Device& device_;
  struct Shared {
    std::vector<ParameterId> partial, replica_partial, replicated;
  };
  std::vector<Shared> units_;
  bool has_tied_ = false;
  ParameterId tied_;  // where has_tied_: the embedding, or the head's copy of it
  int64_t scratch_elements_ = 0;
  DeviceBuffer scratch_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_GRADIENT_SYNC_H_
