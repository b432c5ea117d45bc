// Whether a model can be split over a mesh at all: the rules of tensor, pipeline and context
// parallelism in one place, for the coordinator and the workers.
#ifndef TESSERA_PLAN_LAYOUT_CHECK_H_
#define TESSERA_PLAN_LAYOUT_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/mesh.h"
#include "plan/pipeline_schedule.h"

namespace tessera::plan {

struct LayoutRequest {
  MeshSize mesh;
  int64_t layers = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t intermediate_size = 1;
  int64_t sequence_length = 1;   // tokens
  int64_t micro_batch_size = 1;  // sequences
  bool sequence_parallel = false;
  bool is_ulysses = false;
  ScheduleOptions schedule;       // stages is mesh.pp
  std::vector<int> chunk_layers;  // explicit partition; empty: balanced
};

// The first rule that does not hold: path of a field of TrainingJobSpec, its value, the rule.
struct LayoutFault {
  std::string field;
  std::string value;
  std::string rule;
};

// Nothing: the layout can be trained. REQUIRES: CheckMesh is OK; all sizes are at least 1 and
// kv_heads divides heads.
std::optional<LayoutFault> CheckLayout(const LayoutRequest& request);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LAYOUT_CHECK_H_
