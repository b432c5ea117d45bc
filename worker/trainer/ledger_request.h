// A rank's job in the words of the ledger (plan/ledger.h).
#ifndef TESSERA_WORKER_TRAINER_LEDGER_REQUEST_H_
#define TESSERA_WORKER_TRAINER_LEDGER_REQUEST_H_

#include "plan/ledger.h"
#include "worker/trainer/training_config.h"

namespace tessera {

// Pure. num_threads: of the rank's CPU device; 0: another device.
plan::LedgerRequest MakeLedgerRequest(const TrainingConfig& config, int num_threads);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_LEDGER_REQUEST_H_
