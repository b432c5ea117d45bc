// What a job's spec says about its layout, in the words of plan/: defaults filled in.
#ifndef TESSERA_COORDINATOR_SPEC_LAYOUT_H_
#define TESSERA_COORDINATOR_SPEC_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "plan/layout_check.h"
#include "plan/ledger.h"
#include "plan/mesh.h"
#include "plan/offload.h"
#include "plan/pipeline_schedule.h"
#include "plan/stage_partition.h"
#include "plan/step_traffic.h"
#include "plan/unit_sizes.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// The mesh with its defaults: an absent axis has size 1.
plan::MeshSize MeshOf(const v1::MeshSpec& mesh);

// REQUIRES in all: the rules of spec.proto that concern one field alone hold, and global_batch_size
// is a multiple of mesh.dp * micro_batches.

plan::ScheduleOptions ScheduleOf(const v1::TrainingJobSpec& spec);
v1::PipelineSchedule ToProto(plan::PipelineSchedule schedule);
// Sequences of a micro-batch on a rank.
int64_t MicroBatchSizeOf(const v1::TrainingJobSpec& spec);
plan::LayoutRequest LayoutOf(const v1::TrainingJobSpec& spec);
// Chunks of each pp_rank. REQUIRES: CheckLayout has no fault.
std::vector<std::vector<plan::StageChunk>> StagesOf(const v1::TrainingJobSpec& spec);
plan::ModelSizes ModelSizesOf(const v1::ModelSpec& model);
// chunks: those of the ranks in question.
plan::TrafficRequest TrafficOf(const v1::TrainingJobSpec& spec,
                               const std::vector<plan::StageChunk>& chunks);
// Absent: nothing is offloaded.
plan::StateOffload OffloadOf(const v1::StateOffload& state);
plan::OffloadOptions OffloadOf(const v1::TrainingJobSpec& spec);
// Of a rank of pp_rank that neither samples nor traces.
plan::LedgerRequest LedgerOf(const v1::TrainingJobSpec& spec,
                             const std::vector<plan::StageChunk>& chunks, int pp_rank);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_SPEC_LAYOUT_H_
