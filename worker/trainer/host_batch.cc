#include "worker/trainer/host_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "worker/data/sample_order.h"

namespace tessera {

HostBatch::HostBatch(int64_t sequences, int64_t time, std::vector<int32_t> positions)
    : time_(time),
      positions_(std::move(positions)),
      inputs_(sequences * time),
      targets_(sequences * time),
      valid_(sequences) {}

void HostBatch::Fill(int64_t i, const TokenSource& source, int64_t window_begin,
                     absl::Span<const int32_t> ignore_target_ids) {
  const absl::Span<int32_t> targets(targets_.data() + i * time_, time_);
  FillSequence(source, window_begin, ignore_target_ids,
               absl::Span<int32_t>(inputs_.data() + i * time_, time_), targets);
  valid_[i] = std::count_if(targets.begin(), targets.end(), [](int32_t id) { return id >= 0; });
}

void HostBatch::FillEmpty(int64_t i) {
  std::fill_n(inputs_.begin() + i * time_, time_, 0);
  std::fill_n(targets_.begin() + i * time_, time_, -1);
  valid_[i] = 0;
}

int64_t HostBatch::valid_targets() const {
  return std::accumulate(valid_.begin(), valid_.end(), int64_t{0});
}

int64_t HostBatch::own_valid_targets(int64_t i) const {
  return std::count_if(positions_.begin(), positions_.end(),
                       [&](int32_t position) { return targets_[i * time_ + position] >= 0; });
}

absl::Span<const int32_t> HostBatch::inputs(int64_t i, int64_t count) {
  return Part(inputs_, i, count);
}

absl::Span<const int32_t> HostBatch::targets(int64_t i, int64_t count) {
  return Part(targets_, i, count);
}

absl::Span<const int32_t> HostBatch::Part(const std::vector<int32_t>& whole, int64_t i,
                                          int64_t count) {
  if (static_cast<int64_t>(positions_.size()) == time_) {
    return absl::MakeConstSpan(whole).subspan(i * time_, count * time_);
  }
  part_.clear();
  for (int64_t sequence = i; sequence < i + count; ++sequence) {
    for (const int32_t position : positions_) part_.push_back(whole[sequence * time_ + position]);
  }
  return part_;
}

}  // namespace tessera
