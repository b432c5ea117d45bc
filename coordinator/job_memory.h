// What each rank of a job will hold of its device's and its host's memory and of its disk: a pure
// function of the job's spec.
#ifndef TESSERA_COORDINATOR_JOB_MEMORY_H_
#define TESSERA_COORDINATOR_JOB_MEMORY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/placement.h"
#include "plan/ledger.h"
#include "plan/mesh.h"
#include "proto/tessera/v1/memory.pb.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

v1::DeviceMemory ToProto(const plan::RankLedger& ledger);
// Nothing: the rank holds nothing outside of its device.
std::optional<v1::TierMemory> TiersToProto(const plan::RankLedger& ledger);

class JobMemory {
 public:
  // num_threads: of the workers' devices (plan::LedgerRequest). REQUIRES: ValidateSpec
  // (coordinator/spec_validation.h) is OK.
  JobMemory(const v1::TrainingJobSpec& spec, int num_threads);

  // Of the layout alone: what the rank's arena will measure.
  const plan::RankLedger& OfLayout(int global_rank) const;
  // What the rank's device must have: with spec.verification on global_rank 0 the larger of the
  // layout's part and the whole model, which is trained after it.
  const plan::RankLedger& Needed(int global_rank) const;
  // Whether that is the whole model.
  bool NeedsWholeModel(int global_rank) const;
  // Needed(...) by global rank: of its device needed_bytes().
  std::vector<TierBytes> Needs() const;
  // Needed of the rank of this pp_rank that needs most.
  const plan::RankLedger& Fullest(int pp_rank) const;

  const plan::MeshSize& mesh() const { return mesh_; }
  int num_threads() const { return num_threads_; }

 private:
  const plan::MeshSize mesh_;
  const int num_threads_;
  // By pp_rank. Ranks of one differ in whether they sample and trace.
  std::vector<plan::RankLedger> first_;          // dp_rank, cp_rank and tp_rank 0
  std::vector<plan::RankLedger> first_replica_;  // dp_rank 0
  std::vector<plan::RankLedger> others_;
  std::optional<plan::RankLedger> one_rank_;  // of the model that a verification compares with
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_JOB_MEMORY_H_
