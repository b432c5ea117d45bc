// Which worker gets which rank: a pure decision.
#ifndef TESSERA_COORDINATOR_PLACEMENT_H_
#define TESSERA_COORDINATOR_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/mesh.h"

namespace tessera {

struct Candidate {
  std::string worker;        // "workers/w0"
  std::string host_id;       // equal: the same host
  int64_t memory_bytes = 0;  // of its device
};

// Why no choice of workers has enough device memory.
struct MemoryShortage {
  int global_rank = 0;        // the first, by bytes needed, for which no worker is left
  int64_t needed_bytes = 0;   // by it
  int ranks = 0;              // that need at least as much
  int workers = 0;            // that have at least as much
  int64_t largest_bytes = 0;  // of any worker
};

// needed_bytes: by global rank; memory_bytes: of the workers, in any order. Nothing: each rank can
// have a worker of its own with enough. REQUIRES: at least as many workers as ranks.
std::optional<MemoryShortage> FindShortage(const std::vector<int64_t>& needed_bytes,
                                           const std::vector<int64_t>& memory_bytes);

// workers[global_rank]; each has the bytes that its rank needs (needed_bytes[global_rank]). Ranks
// in order, hosts with most candidates first, then by host id; inside a host the smallest device
// that is enough, then by worker name: so a tp group (adjacent ranks) lies inside one host wherever
// it fits and leaves enough for the other ranks, and the same idle workers always give the same
// placement. FAILED_PRECONDITION "needs N idle workers, M are idle"; RESOURCE_EXHAUSTED:
// FindShortage has one.
absl::StatusOr<std::vector<std::string>> PlaceRanks(const plan::MeshSize& mesh,
                                                    const std::vector<int64_t>& needed_bytes,
                                                    const std::vector<Candidate>& idle);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_PLACEMENT_H_
