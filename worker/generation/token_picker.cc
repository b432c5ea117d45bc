#include "worker/generation/token_picker.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/philox.h"

namespace tessera {
namespace {

// Uniform in [0, 1).
double Uniform(uint64_t seed, int64_t position) {
  return static_cast<double>(PhiloxBlock(seed, 0, position)[0]) * 0x1p-32;
}

}  // namespace

int32_t PickToken(absl::Span<const float> logits, const TokenChoice& choice, int64_t position) {
  if (choice.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const bool keeps_all_ids = choice.top_k <= 0 || choice.top_k >= static_cast<int64_t>(ids.size());
  if (!keeps_all_ids || choice.top_p < 1) {
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    if (!keeps_all_ids) ids.resize(choice.top_k);
  }
  double max = -HUGE_VAL;
  for (const int32_t id : ids) max = std::max(max, static_cast<double>(logits[id]));
  std::vector<double> cumulative;
  double total = 0;
  for (const int32_t id : ids) {
    total += std::exp((logits[id] - max) / choice.temperature);
    cumulative.push_back(total);
  }
  if (choice.top_p < 1) {
    const auto last = std::lower_bound(cumulative.begin(), cumulative.end(), choice.top_p * total);
    cumulative.resize(std::min<size_t>(last - cumulative.begin() + 1, cumulative.size()));
    total = cumulative.back();
  }
  const double draw = Uniform(choice.seed, position) * total;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), draw);
  return ids[std::min<size_t>(chosen - cumulative.begin(), cumulative.size() - 1)];
}

}  // namespace tessera
