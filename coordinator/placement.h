// Which worker gets which rank: a pure decision.
#ifndef TESSERA_COORDINATOR_PLACEMENT_H_
#define TESSERA_COORDINATOR_PLACEMENT_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/mesh.h"
#include "plan/offload.h"

namespace tessera {

// Bytes by tier: what a rank needs, or what a worker has.
struct TierBytes {
  int64_t device = 0;  // memory of the device
  int64_t host = 0;    // memory of the host
  int64_t nvme = 0;    // space on disk

  int64_t of(plan::Tier tier) const;
  // At least as much on every tier.
  bool covers(const TierBytes& needs) const {
    return device >= needs.device && host >= needs.host && nvme >= needs.nvme;
  }
  friend auto operator<=>(const TierBytes&, const TierBytes&) = default;
};
inline constexpr plan::Tier kTiers[] = {plan::Tier::kDevice, plan::Tier::kHost, plan::Tier::kNvme};

struct Candidate {
  std::string worker;   // "workers/w0"
  std::string host_id;  // equal: the same host
  TierBytes has;
};

// Each one's has.
std::vector<TierBytes> BytesOf(const std::vector<Candidate>& candidates);

// Why no choice of workers has enough.
struct MemoryShortage {
  plan::Tier tier = plan::Tier::kDevice;  // that is short: the first that is by itself
  int global_rank = 0;                    // the first, by bytes needed, for which no worker is left
  int64_t needed_bytes = 0;               // by it, of this tier
  int ranks = 0;                          // that need at least as much
  int workers = 0;                        // that have at least as much
  int64_t largest_bytes = 0;              // of any worker
  // Each tier by itself would do, but not on the same workers: workers counts those that have all
  // that the rank needs.
  bool is_combined = false;
};

// needs: by global rank; has: of the workers, in any order. Nothing: each rank can have a worker of
// its own with enough of every tier. REQUIRES: at least as many workers as ranks.
std::optional<MemoryShortage> FindShortage(const std::vector<TierBytes>& needs,
                                           const std::vector<TierBytes>& has);

// workers[global_rank]; each covers what its rank needs (needs[global_rank]). Ranks in order, hosts
// with most candidates first, then by host id; inside a host the smallest device that is enough,
// then the smallest host memory, then by worker name: so a tp group (adjacent ranks) lies
// inside one host wherever it fits and leaves enough for the other ranks, and the same idle workers
// always give the same placement. FAILED_PRECONDITION "needs N idle workers, M are idle";
// RESOURCE_EXHAUSTED: FindShortage has one.
absl::StatusOr<std::vector<std::string>> PlaceRanks(const plan::MeshSize& mesh,
                                                    const std::vector<TierBytes>& needs,
                                                    const std::vector<Candidate>& idle);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_PLACEMENT_H_
