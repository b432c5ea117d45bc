// Which decoder layers a pipeline stage holds.
#ifndef TESSERA_PLAN_STAGE_PARTITION_H_
#define TESSERA_PLAN_STAGE_PARTITION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::plan {

struct LayerRange {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Contiguous layers of each global chunk g = chunk * p + pp_rank (plan/pipeline_schedule.h).
// layers_per_chunk: counts by g, or empty for balanced: counts differ by at most one. The larger
// ones are in the middle, rather earlier than later; the first chunk, which also has the
// embedding, and the last, with the head and the loss, are among the smaller where possible.
// INVALID_ARGUMENT naming the numbers: a size below 1, fewer layers than chunks, counts that are
// not one for each chunk, below 1, or do not sum up to layers.
absl::StatusOr<std::vector<LayerRange>> PartitionLayers(int layers, int chunks_total,
                                                        absl::Span<const int> layers_per_chunk);

struct StageChunk {
  LayerRange layers;
  bool has_embedding = false;  // global chunk 0
  bool has_head = false;       // the last; final norm, head and loss
};

// The same as [pp_rank][chunk] of stages * chunks. Errors as PartitionLayers.
absl::StatusOr<std::vector<std::vector<StageChunk>>> PartitionStages(
    int layers, int stages, int chunks, absl::Span<const int> layers_per_chunk);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_STAGE_PARTITION_H_
