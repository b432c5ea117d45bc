// Sequences on the host, on their way to the device.
//
// Legend: B sequences of T tokens.
#ifndef TESSERA_WORKER_TRAINER_HOST_BATCH_H_
#define TESSERA_WORKER_TRAINER_HOST_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/token_source.h"

namespace tessera {

// Fixed room for `sequences` sequences. Used by one thread.
class HostBatch {
 public:
  HostBatch(int64_t sequences, int64_t time);

  // Sequence i = the window of source that starts at window_begin, as FillSequence.
  void Fill(int64_t i, const TokenSource& source, int64_t window_begin,
            absl::Span<const int32_t> ignore_target_ids);
  // Sequence i = no targets at all.
  void FillEmpty(int64_t i);

  int64_t valid_targets(int64_t i) const { return valid_[i]; }
  int64_t valid_targets() const;
  // (count, T) from sequence i on.
  absl::Span<const int32_t> inputs(int64_t i, int64_t count) const;
  absl::Span<const int32_t> targets(int64_t i, int64_t count) const;

 private:
  const int64_t time_;
  std::vector<int32_t> inputs_;   // (B, T)
  std::vector<int32_t> targets_;  // (B, T)
  std::vector<int64_t> valid_;    // (B)
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_HOST_BATCH_H_
