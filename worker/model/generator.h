// Continues one sequence token by token, with a cache of keys and values.
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
#include "worker/model/transformer.h"

namespace tessera {

// Used by one thread. model, device and stream outlive it; the weights may change only while it is
// restarted.
class Generator {
 public:
  // capacity: tokens of a sequence, at most the model's context_length (INVALID_ARGUMENT). dtype:
  // the store's. RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<std::unique_ptr<Generator>> Create(const Transformer& model, DType dtype,
                                                           int64_t capacity, Device& device,
                                                           Stream& stream);

  // Appends tokens, at least one, and returns the logits (V) that follow the last, valid until the
  // next call. INVALID_ARGUMENT, naming token and position: an id outside the vocabulary, no
  // tokens, or more than capacity - length(); nothing is appended then.
  absl::StatusOr<absl::Span<const float>> Append(absl::Span<const int32_t> tokens);
  // Forgets the sequence.
  void Restart() { cache_.length = 0; }

  int64_t length() const { return cache_.length; }
  int64_t capacity() const { return cache_.capacity; }

 private:
  Generator(const Transformer& model, KvCache cache, Stream& stream);
  absl::Status Check(absl::Span<const int32_t> tokens) const;
  absl::Status Run(absl::Span<const int32_t> tokens, bool with_logits,
                   TransformerActivations& activations);

  const Transformer& model_;
  Stream& stream_;
  KvCache cache_;
  std::optional<TransformerActivations> one_;   // of one token
  std::optional<TransformerActivations> many_;  // of a piece of a prompt; absent if it has no room
  std::vector<float> logits_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_GENERATOR_H_
