// Sequences on the host, on their way to the device.
//
// Legend: B sequences of T tokens, of which a rank has t (T without context parallelism).
#ifndef TESSERA_WORKER_TRAINER_HOST_BATCH_H_
#define TESSERA_WORKER_TRAINER_HOST_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/token_source.h"

namespace tessera {

// Fixed room for `sequences` whole sequences. Used by one thread.
class HostBatch {
 public:
  // positions (t): of the tokens of each sequence that are this rank's, in its order.
  HostBatch(int64_t sequences, int64_t time, std::vector<int32_t> positions);

  // Sequence i = the window of source that starts at window_begin, as FillSequence.
  void Fill(int64_t i, const TokenSource& source, int64_t window_begin,
            absl::Span<const int32_t> ignore_target_ids);
  // Sequence i = no targets at all.
  void FillEmpty(int64_t i);

  // Of the whole sequences.
  int64_t valid_targets() const;
  // Of this rank's part of sequence i.
  int64_t own_valid_targets(int64_t i) const;
  // This rank's part (count, t) from sequence i on; valid until the next call.
  absl::Span<const int32_t> inputs(int64_t i, int64_t count);
  absl::Span<const int32_t> targets(int64_t i, int64_t count);

 private:
  absl::Span<const int32_t> Part(const std::vector<int32_t>& whole, int64_t i, int64_t count);

  const int64_t time_;
  const std::vector<int32_t> positions_;
  std::vector<int32_t> inputs_;   // (B, T)
  std::vector<int32_t> targets_;  // (B, T)
  std::vector<int64_t> valid_;    // (B)
  std::vector<int32_t> part_;     // what was last asked for
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_HOST_BATCH_H_
