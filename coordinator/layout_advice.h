// Layouts of a job that fit into the workers, and what can leave their devices, in the words of a
// job file: pure functions.
#ifndef TESSERA_COORDINATOR_LAYOUT_ADVICE_H_
#define TESSERA_COORDINATOR_LAYOUT_ADVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/placement.h"
#include "plan/ledger.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// "1.23 MB (1234567 bytes)"
std::string BytesText(int64_t bytes);
// "parameters 1.23 MB, gradients ...": those that are not 0.
std::string CategoriesText(const plan::RankLedger& ledger);

// The nearest first, at most three (plan/layout_search.h): of each the lines of the job file that
// change, after a comment with the prediction of its fullest rank. has: of the workers, at least as
// many as the job has ranks; num_threads: as in plan::LedgerRequest. REQUIRES: ValidateSpec is OK.
std::vector<std::string> LayoutsThatFit(const v1::TrainingJobSpec& spec,
                                        const std::vector<TierBytes>& has, int num_threads);

// The same layout with more of its state outside of the device: the least that fits of optimizer,
// then gradients, then parameters, on the host, and the least of them on nvme; at most these two.
std::vector<std::string> OffloadsThatFit(const v1::TrainingJobSpec& spec,
                                         const std::vector<TierBytes>& has, int num_threads);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_LAYOUT_ADVICE_H_
