// Which window of the token file is sample k of a job: a function of (seed, k) alone, so that no
// layout changes what is learned.
#ifndef TESSERA_WORKER_DATA_SAMPLE_ORDER_H_
#define TESSERA_WORKER_DATA_SAMPLE_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/token_source.h"

namespace tessera {

// A job's place in its data, as people and checkpoints know it.
struct SampleCursor {
  int64_t epoch = 0;  // passes over the windows that are complete
  int64_t index = 0;  // samples taken of the pass that is not; 0 .. windows_per_epoch - 1

  friend bool operator==(const SampleCursor&, const SampleCursor&) = default;
};

// Windows of sequence_length + 1 tokens start at multiples of sequence_length, so every token but
// the first is a target exactly once an epoch. An epoch is a permutation of the windows, by a
// Feistel network with cycle walking over (seed, epoch). Stateless and thread-safe.
class SampleOrder {
 public:
  // REQUIRES: num_tokens > sequence_length >= 1.
  SampleOrder(int64_t num_tokens, int32_t sequence_length, uint64_t seed);

  int64_t windows_per_epoch() const { return num_windows_; }
  // Of sample k of the job: k = step * global_batch_size + index in the global batch, steps counted
  // from 0. The inverse is SampleOf.
  SampleCursor CursorOf(int64_t sample) const;
  int64_t SampleOf(const SampleCursor& cursor) const;

  // First token of the sample at the cursor. REQUIRES: 0 <= cursor.index < windows_per_epoch().
  int64_t WindowBegin(const SampleCursor& cursor) const;
  int64_t WindowBegin(int64_t sample) const { return WindowBegin(CursorOf(sample)); }

 private:
  const int64_t num_windows_;
  const int32_t sequence_length_;
  const uint64_t seed_;
  int half_bits_;
};

// Inputs and targets of one sequence of T tokens.
// inputs (T), targets (T): target t is the token after input t, or -1 where it carries no loss.
void FillSequence(const TokenSource& source, int64_t window_begin,
                  absl::Span<const int32_t> ignore_target_ids, absl::Span<int32_t> inputs,
                  absl::Span<int32_t> targets);

// Targets of the window that carry a loss. Equal to counting FillSequence's targets >= 0.
int64_t CountValidTargets(const TokenSource& source, int64_t window_begin, int32_t sequence_length,
                          absl::Span<const int32_t> ignore_target_ids);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_SAMPLE_ORDER_H_
