#include "plan/stage_partition.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::plan {
namespace {

std::vector<int> BalancedCounts(int layers, int chunks) {
  const int larger = layers % chunks;
  // The run of larger ones: centred between the ends, or from the first if it needs that too.
  const int begin = larger > chunks - 2 ? 0 : 1 + (chunks - 2 - larger) / 2;
  std::vector<int> counts(chunks, layers / chunks);
  for (int i = begin; i < begin + larger; ++i) ++counts[i];
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

absl::StatusOr<std::vector<LayerRange>> PartitionLayers(int layers, int chunks_total,
                                                        absl::Span<const int> layers_per_chunk) {
  if (chunks_total < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks_total: ", chunks_total, ": must be at least 1"));
  }
  if (layers < chunks_total) {
    return absl::InvalidArgumentError(absl::StrCat("layers: ", layers, ": fewer than the ",
                                                   chunks_total, " chunks (stages * chunks)"));
  }
  std::vector<int> counts(layers_per_chunk.begin(), layers_per_chunk.end());
  if (counts.empty()) {
    counts = BalancedCounts(layers, chunks_total);
  } else if (absl::Status status = CheckCounts(layers, chunks_total, counts); !status.ok()) {
    return status;
  }
  std::vector<LayerRange> ranges;
  int first = 0;
  for (int count : counts) {
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

absl::StatusOr<std::vector<std::vector<StageChunk>>> PartitionStages(
    int layers, int stages, int chunks, absl::Span<const int> layers_per_chunk) {
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
  auto ranges = PartitionLayers(layers, static_cast<int>(chunks_total), layers_per_chunk);
  if (!ranges.ok()) return ranges.status();
  std::vector<std::vector<StageChunk>> result(stages);
  for (int global = 0; global < chunks_total; ++global) {
    result[global % stages].push_back({.layers = (*ranges)[global],
                                       .has_embedding = global == 0,
                                       .has_head = global == chunks_total - 1});
  }
  return result;
}

}  // namespace tessera::plan
