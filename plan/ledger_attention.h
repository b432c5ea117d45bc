// Memory that attention takes besides its results (worker/context_parallel): buffers of a cp group,
// and the kernel's workspace on a CPU device.
#ifndef TESSERA_PLAN_LEDGER_ATTENTION_H_
#define TESSERA_PLAN_LEDGER_ATTENTION_H_

#include "plan/ledger.h"
#include "plan/ledger_bytes.h"
#include "plan/ledger_pass.h"

namespace tessera::plan {

// Of training, with backward.
LedgerBytes ContextAttentionBytes(const LedgerRequest& request, const PassSizes& pass);

// Of one sequence whose cache has cache_rows rows on this rank.
LedgerBytes CacheAttentionBytes(const LedgerRequest& request, const PassSizes& pass,
                                BigSize cache_rows);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LEDGER_ATTENTION_H_
