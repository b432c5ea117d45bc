// Until worker/data has an implementation: windows in a fixed pseudo-random order.
#include <algorithm>

#include "worker/data/sample_order.h"

namespace tessera {

SampleOrder::SampleOrder(int64_t num_tokens, int32_t sequence_length, uint64_t seed)
    : num_windows_((num_tokens - 1) / sequence_length),
      sequence_length_(sequence_length),
      seed_(seed),
      half_bits_(0) {}

int64_t SampleOrder::WindowBegin(int64_t cursor) const {
  uint64_t x = static_cast<uint64_t>(cursor) + seed_ * 0x9E3779B97F4A7C15u + half_bits_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<int64_t>(x % static_cast<uint64_t>(num_windows_)) * sequence_length_;
}

void FillSequence(const TokenSource& source, int64_t window_begin,
                  absl::Span<const int32_t> ignore_target_ids, absl::Span<int32_t> inputs,
                  absl::Span<int32_t> targets) {
  std::vector<int32_t> tokens(inputs.size() + 1);
  source.Read(window_begin, absl::MakeSpan(tokens));
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = tokens[i];
    const bool ignored = std::find(ignore_target_ids.begin(), ignore_target_ids.end(),
                                   tokens[i + 1]) != ignore_target_ids.end();
    targets[i] = ignored ? -1 : tokens[i + 1];
  }
}

}  // namespace tessera
