// The tiers of one worker below its device.
#ifndef TESSERA_WORKER_OFFLOAD_WORKER_TIERS_H_
#define TESSERA_WORKER_OFFLOAD_WORKER_TIERS_H_

#include <string>

#include "kernels/device.h"
#include "storage/tier_store.h"

namespace tessera {

// Owned by the worker; they outlive its jobs. Null: the worker has no such tier.
struct WorkerTiers {
  // The pool of host memory, as a CPU device whose arena bounds it.
  Device* host = nullptr;
  TierStore* nvme = nullptr;
  // Folder of this worker alone on the nvme tier's disk, for what no restart needs.
  std::string swap_dir;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_WORKER_TIERS_H_
