// Continues one sequence token by token, with a cache of keys and values; on one rank, or on all
// ranks of one model copy together.
#ifndef TESSERA_WORKER_MODEL_GENERATOR_H_
#define TESSERA_WORKER_MODEL_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/model/kv_cache.h"
#include "worker/model/transformer.h"

namespace tessera {

// Used by one thread. Models, groups, device and stream outlive it; the weights may change only
// while it is restarted. Of a model that is split, all ranks with one dp_rank make the same calls.
class Generator {
 public:
  // What the ranks share besides tp, which the models know; null: one rank.
  struct Groups {
    Communicator* pp = nullptr;
    Communicator* cp = nullptr;
  };
  // chunks: this rank's, in forward order, without sequence parallelism. capacity: tokens of a
  // sequence, at most the model's context_length (INVALID_ARGUMENT); each cp rank has room for its
  // share of them. dtype: the store's. RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<std::unique_ptr<Generator>> Create(
      absl::Span<const Transformer* const> chunks, const Groups& groups, DType dtype,
      int64_t capacity, Device& device, Stream& stream);
  // The whole model on one rank.
  static absl::StatusOr<std::unique_ptr<Generator>> Create(const Transformer& model, DType dtype,
                                                           int64_t capacity, Device& device,
                                                           Stream& stream);

  // Appends tokens, at least one, and returns the logits (V) that follow the last, valid until the
  // next call, the same on all ranks. INVALID_ARGUMENT, naming token and position: an id outside
  // the vocabulary, no tokens, or more than capacity - length(); nothing is appended then.
  absl::StatusOr<absl::Span<const float>> Append(absl::Span<const int32_t> tokens);
  // Forgets the sequence.
  void Restart() { cache_.Clear(); }

  int64_t length() const { return cache_.length(); }
  int64_t capacity() const { return cache_.capacity(); }

 private:
  // Memory of a number of tokens that go through the model together.
  struct Pass {
    TransformerScratch scratch;
    std::vector<TransformerActivations> chunks;
  };

  Generator(absl::Span<const Transformer* const> chunks, const Groups& groups, KvCache cache,
            Stream& stream);
  absl::StatusOr<Pass> MakePass(int64_t time, DType dtype, Device& device);
  absl::Status Check(absl::Span<const int32_t> tokens) const;
  absl::Status Run(absl::Span<const int32_t> tokens, bool with_logits, Pass& pass);
  absl::Status RunChunks(bool with_logits, Pass& pass);
  // logits_ = of the head's single row, on every rank.
  absl::Status ShareLogits(Pass& pass);

  const std::vector<const Transformer*> chunks_;
  const Groups groups_;
  Stream& stream_;
  KvCache cache_;
  std::optional<Pass> one_;   // of one token
  std::optional<Pass> many_;  // of a piece of a prompt; absent if it has no room
  DeviceBuffer all_logits_;   // where ranks share them
  DType dtype_ = DType::kFloat32;
  std::vector<float> logits_;  // (padded V)
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_GENERATOR_H_
