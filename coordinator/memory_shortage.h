// What to tell about a job for which the workers have too little: pure functions.
#ifndef TESSERA_COORDINATOR_MEMORY_SHORTAGE_H_
#define TESSERA_COORDINATOR_MEMORY_SHORTAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/job_memory.h"
#include "coordinator/placement.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// Reason of the error and of the condition: INSUFFICIENT_DEVICE_MEMORY, INSUFFICIENT_HOST_MEMORY,
// INSUFFICIENT_NVME_SPACE.
std::string ShortageReason(plan::Tier tier);

// Which pp_rank needs how many bytes of what, how many workers have as much, and what the others
// have, each by name. workers: the attached ones.
std::string ShortageText(const JobMemory& memory, const MemoryShortage& shortage,
                         const std::vector<Candidate>& workers);

// RESOURCE_EXHAUSTED: ShortageText, then the nearest layouts that fit, and what of the state can
// leave the device so that it fits, as text of a job file. workers: the attached ones.
absl::Status InsufficientMemory(const v1::TrainingJobSpec& spec, const JobMemory& memory,
                                const MemoryShortage& shortage,
                                const std::vector<Candidate>& workers);

// Of a rank that must go where its state is: the first tier of which that worker has too little;
// nothing where it has enough.
struct WorkerShortfall {
  plan::Tier tier = plan::Tier::kDevice;
  std::string message;  // names worker, rank, needed and available bytes
};
std::optional<WorkerShortfall> FindShortfall(const Candidate& worker, int global_rank,
                                             const TierBytes& needs);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_MEMORY_SHORTAGE_H_
