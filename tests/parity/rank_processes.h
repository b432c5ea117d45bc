// Trains a spec with a process per rank.
#ifndef TESSERA_TESTS_PARITY_RANK_PROCESSES_H_
#define TESSERA_TESTS_PARITY_RANK_PROCESSES_H_

#include <functional>

#include "proto/tessera/v1/spec.pb.h"
#include "tests/parity/parity_harness.h"

namespace tessera {

enum class RankLink {
  kMapped,    // all ranks are on one host
  kTcp,       // each rank is a host of its own
  kTwoHosts,  // even and odd global ranks
};

// Runs spec on the ranks of spec.mesh, at most 16, forked from the calling process, which has no
// other threads. `check` is called in the process of global_rank 0 with what it saw. The test fails
// where a rank fails, where `check` does, and where ranks disagree as in TrainInProcess.
void TrainAsProcesses(const v1::TrainingJobSpec& spec, const JobData& data, RankLink link,
                      const std::function<void(const ParityRun&)>& check);

}  // namespace tessera

#endif  // TESSERA_TESTS_PARITY_RANK_PROCESSES_H_
