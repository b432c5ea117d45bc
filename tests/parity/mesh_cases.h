// The parity table: layouts of a mesh, each to be compared with one rank.
#ifndef TESSERA_TESTS_PARITY_MESH_CASES_H_
#define TESSERA_TESTS_PARITY_MESH_CASES_H_

#include <string>
#include <vector>

#include "proto/tessera/v1/spec.pb.h"
#include "tests/parity/parity_harness.h"

namespace tessera {

// What a row may set besides its mesh; all else is the small model of MeshSpec.
struct MeshCase {
  std::string name;
  int dp = 1, cp = 1, pp = 1, tp = 1;
  bool llama = false;
  bool sequence_parallel = false;
  v1::PipelineSchedule schedule = v1::PIPELINE_SCHEDULE_UNSPECIFIED;
  std::vector<int> chunk_layers = {};  // with interleaved: 2 chunks a stage
  v1::ContextParallelKind cp_kind = v1::CONTEXT_PARALLEL_KIND_UNSPECIFIED;
  v1::Recompute recompute = v1::RECOMPUTE_UNSPECIFIED;
  v1::Precision precision = v1::PRECISION_FP32;
  int micro_batches = 2;
  int kv_heads = 0;  // llama; 0: 4 heads share 2
  int vocab = 61;    // odd: padded over tp
  int masked = 0;    // 1: a block of targets; 2: all but one of the whole batch
  bool tied = true;
  bool attention_bias = false;  // llama
  int zero_stage = 0;
};

std::vector<MeshCase> MeshCases();
JobData MeshData(const MeshCase& row);
v1::TrainingJobSpec MeshSpec(const MeshCase& row);
// The same model and batch on one rank in one micro-batch, without recomputing.
v1::TrainingJobSpec PlainSpec(const MeshCase& row);
// Within the tolerances of worker/trainer/verification.h.
void ExpectSameTraining(const MeshCase& row, const ParityRun& one, const ParityRun& split);

// Losses, norms, final weights and AdamW's means, bit for bit.
void ExpectSameBits(const ParityRun& first, const ParityRun& other);

}  // namespace tessera

#endif  // TESSERA_TESTS_PARITY_MESH_CASES_H_
