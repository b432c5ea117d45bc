// What to tell about a job for which the workers' devices are too small: pure functions.
#ifndef TESSERA_COORDINATOR_MEMORY_SHORTAGE_H_
#define TESSERA_COORDINATOR_MEMORY_SHORTAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/job_memory.h"
#include "coordinator/placement.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// Reason of the error and of the condition.
inline constexpr char kInsufficientDeviceMemory[] = "INSUFFICIENT_DEVICE_MEMORY";

// Which pp_rank needs how many bytes of what, and how many workers have as much.
std::string ShortageText(const JobMemory& memory, const MemoryShortage& shortage, size_t workers);

// RESOURCE_EXHAUSTED: ShortageText, then the nearest layouts that fit, as text of a job file.
// memory_bytes: of the attached workers.
absl::Status InsufficientMemory(const v1::TrainingJobSpec& spec, const JobMemory& memory,
                                const MemoryShortage& shortage,
                                const std::vector<int64_t>& memory_bytes);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_MEMORY_SHORTAGE_H_
