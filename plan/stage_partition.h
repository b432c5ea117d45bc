// Which decoder layers a pipeline stage holds.
#ifndef TESSERA_PLAN_STAGE_PARTITION_H_
#define TESSERA_PLAN_STAGE_PARTITION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/model_sizes.h"

namespace tessera::plan {

struct LayerRange {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// What a token costs, in any unit of work. The embedding is a table look-up: nothing.
struct LayerCosts {
  BigSize layer = 1;  // >= 1
  BigSize head = 0;   // final norm, logits and loss
};

// Multiply-adds of the matrices and of causal attention over sequence_length tokens. In backward
// both cost twice as much, so the ratio stays.
LayerCosts LayerCostsOf(const ModelSizes& model, int64_t sequence_length);

struct StageChunk {
  LayerRange layers;
  bool has_embedding = false;  // global chunk 0
  bool has_head = false;       // the last; final norm, head and loss
};

// Contiguous layers as [pp_rank][chunk]; global chunk g = chunk * stages + pp_rank
// (plan/pipeline_schedule.h). layers_per_chunk: counts by g, or empty for balanced: the most
// expensive stage is as cheap as it can be, then the chunks of a stage are as equal as they can.
// Where that leaves a choice, chunks in the middle have more layers than those at the ends, rather
// earlier than later. INVALID_ARGUMENT naming the numbers: a size below 1, fewer layers than
// chunks, counts that are not one for each chunk, below 1, or do not sum up to layers.
absl::StatusOr<std::vector<std::vector<StageChunk>>> PartitionStages(
    int layers, int stages, int chunks, absl::Span<const int> layers_per_chunk,
    const LayerCosts& costs);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_STAGE_PARTITION_H_
