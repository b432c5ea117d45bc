// Memory of activations (worker/model): what micro-batches keep, and what all share.
#ifndef TESSERA_PLAN_LEDGER_ACTIVATIONS_H_
#define TESSERA_PLAN_LEDGER_ACTIVATIONS_H_

#include <vector>

#include "plan/ledger.h"
#include "plan/ledger_bytes.h"

namespace tessera::plan {

// What a rank's stage holds in training: of each chunk so many micro-batches.
LedgerBytes StageBytes(const LedgerRequest& request, const std::vector<int>& micro_batches);

// Inputs of layers that wait in host memory for their recomputation.
BigSize WaitingActivationBytes(const LedgerRequest& request, const std::vector<int>& micro_batches);

// What generating a sample holds besides: the cache of keys and values, and one pass of one token
// and one of a piece of a prompt.
LedgerBytes SamplerBytes(const LedgerRequest& request);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_ACTIVATIONS_H_
