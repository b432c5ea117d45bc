#include "worker/trainer/ledger_request.h"

#include "worker/trainer/step_traffic_meter.h"

namespace tessera {

plan::LedgerRequest MakeLedgerRequest(const TrainingConfig& config, int num_threads) {
  const plan::Coordinates& at = config.at;
  plan::LedgerRequest request;
  request.job = MakeTrafficRequest(config);
  request.schedule = config.schedule;
  request.pp_rank = at.pp_rank;
  request.prefetch_units = config.zero.prefetch_units;
  request.samples = config.takes_part_in_sample();
  request.traces = config.trace_step > 0 && at.dp_rank == 0 && at.cp_rank == 0 && at.tp_rank == 0;
  request.num_threads = num_threads;
  request.offload = config.offload;
  return request;
}

}  // namespace tessera
