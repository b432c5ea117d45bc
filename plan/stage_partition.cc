#include "plan/stage_partition.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::plan {
namespace {

// Global chunks in the order in which they get a layer more than others: from the middle outwards,
// the first before the last.
std::vector<int> MiddleFirst(int chunks) {
  std::vector<int> order;
  const int inner = chunks - 2;
  for (int i = 0; i < inner; ++i) {
    const int step = (i + 1) / 2;
    const bool is_right = i % 2 == (inner % 2 == 0 ? 1 : 0);
    order.push_back(1 + (inner - 1) / 2 + (is_right ? step : -step));
  }
  order.push_back(0);
  if (chunks > 1) order.push_back(chunks - 1);
  return order;
}

// One layer each, then one after the other to the cheapest chunk of the cheapest stage; for equal
// layers this is optimal (Graham, 1969).
std::vector<int> BalancedCounts(int layers, int stages, int chunks, const LayerCosts& costs) {
  const int total = stages * chunks;
  std::vector<int> counts(total, 1);
  std::vector<BigSize> of_chunk(total, costs.layer), of_stage(stages, costs.layer * chunks);
  of_chunk[total - 1] += costs.head;
  of_stage[stages - 1] += costs.head;
  const std::vector<int> order = MiddleFirst(total);
  for (int layer = total; layer < layers; ++layer) {
    int best = order.front();
    for (const int g : order) {
      const auto cost = [&](int at) { return std::pair(of_stage[at % stages], of_chunk[at]); };
      if (cost(g) < cost(best)) best = g;
    }
    ++counts[best];
    of_chunk[best] += costs.layer;
    of_stage[best % stages] += costs.layer;
  }
  return counts;
}

absl::Status CheckCounts(int layers, int chunks, absl::Span<const int> counts) {
  auto error = [&](const auto&... rule) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers_per_chunk: [", absl::StrJoin(counts, ", "), "]: ", rule...));
  };
  if (counts.size() != static_cast<size_t>(chunks)) {
    return error("has ", counts.size(), " counts for ", chunks, " chunks (stages * chunks)");
  }
  int64_t sum = 0;
  for (int count : counts) {
    if (count < 1) return error("each must be at least 1");
    sum += count;
  }
  if (sum != layers) return error("sums to ", sum, ", the model has ", layers, " layers");
  return absl::OkStatus();
}

}  // namespace

LayerCosts LayerCostsOf(const ModelSizes& model, int64_t sequence_length) {
  const BigSize c = model.hidden_size, f = model.intermediate_size;
  const BigSize q = BigSize(model.heads) * model.head_size;
  const BigSize kv = BigSize(model.kv_heads) * model.head_size;
  const BigSize attention = c * (q + 2 * kv) + q * c + q * sequence_length;
  const BigSize mlp = c * f * (model.is_llama ? 3 : 2);
  return {attention + mlp, c * model.vocab_size};
}

absl::StatusOr<std::vector<std::vector<StageChunk>>> PartitionStages(
    int layers, int stages, int chunks, absl::Span<const int> layers_per_chunk,
    const LayerCosts& costs) {
  const std::pair<const char*, int> sizes[] = {{"stages", stages}, {"chunks", chunks}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, ": must be at least 1"));
    }
    if (value > layers) {  // also keeps the product in range
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", value, ": more than the ", layers, " layers"));
    }
  }
  const int64_t chunks_total = int64_t{stages} * chunks;
  if (chunks_total > layers) {
    return absl::InvalidArgumentError(absl::StrCat("layers: ", layers, ": fewer than the ",
                                                   chunks_total, " chunks (", stages, " stages * ",
                                                   chunks, " chunks)"));
  }
  std::vector<int> counts(layers_per_chunk.begin(), layers_per_chunk.end());
  if (counts.empty()) {
    counts = BalancedCounts(layers, stages, chunks, costs);
  } else {
    absl::Status status = CheckCounts(layers, static_cast<int>(chunks_total), counts);
    if (!status.ok()) return status;
  }
  std::vector<std::vector<StageChunk>> result(stages);
  int first = 0;
  for (int global = 0; global < chunks_total; ++global) {
    result[global % stages].push_back({.layers = {first, counts[global]},
                                       .has_embedding = global == 0,
                                       .has_head = global == chunks_total - 1});
    first += counts[global];
  }
  return result;
}

}  // namespace tessera::plan
