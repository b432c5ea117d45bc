#include "coordinator/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr int kNobody = -1;

// Ranks, most needy first; equal ones in order.
std::vector<int> ByNeed(const std::vector<TierBytes>& needs) {
  std::vector<int> ranks(needs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return needs[a] > needs[b]; });
  return ranks;
}

// Gives ranks to workers one at a time, moving earlier ones where that makes room (augmenting
// paths: Kuhn, 1955). With workers that all have enough it is one pass.
class Matching {
 public:
  Matching(const std::vector<TierBytes>& needs, const std::vector<TierBytes>& has)
      : needs_(needs), has_(has), rank_of_(has.size(), kNobody) {}

  bool Add(int rank) {
    visited_.assign(has_.size(), false);
    return Place(rank);
  }

 private:
  bool Place(int rank) {
    for (size_t worker = 0; worker < has_.size(); ++worker) {
      if (rank_of_[worker] != kNobody || !has_[worker].covers(needs_[rank])) continue;
      rank_of_[worker] = rank;
      return true;
    }
    for (size_t worker = 0; worker < has_.size(); ++worker) {
      if (visited_[worker] || !has_[worker].covers(needs_[rank])) continue;
      visited_[worker] = true;
      if (!Place(rank_of_[worker])) continue;
      rank_of_[worker] = rank;
      return true;
    }
    return false;
  }

  const std::vector<TierBytes>& needs_;
  const std::vector<TierBytes>& has_;
  std::vector<int> rank_of_;  // by worker
  std::vector<bool> visited_;
};

// As FindShortage, of one tier alone.
std::optional<MemoryShortage> ShortageOf(plan::Tier tier, const std::vector<TierBytes>& needs,
                                         const std::vector<TierBytes>& has) {
  std::vector<int> ranks(needs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return needs[a].of(tier) > needs[b].of(tier); });
  std::vector<int64_t> bytes;
  for (const TierBytes& each : has) bytes.push_back(each.of(tier));
  std::sort(bytes.begin(), bytes.end(), std::greater<>());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t needed = needs[ranks[i]].of(tier);
    if (needed <= bytes[i]) continue;
    MemoryShortage shortage;
    shortage.tier = tier;
    shortage.global_rank = ranks[i];
    shortage.needed_bytes = needed;
    shortage.ranks =
        static_cast<int>(std::count_if(needs.begin(), needs.end(), [&](const TierBytes& rank) {
          return rank.of(tier) >= needed;
        }));
    shortage.workers = static_cast<int>(
        std::count_if(bytes.begin(), bytes.end(), [&](int64_t each) { return each >= needed; }));
    shortage.largest_bytes = bytes[0];
    return shortage;
  }
  return std::nullopt;
}

// The first rank for which no worker is left; nothing where all have one.
std::optional<int> FirstWithout(const std::vector<TierBytes>& needs,
                                const std::vector<TierBytes>& has) {
  Matching matching(needs, has);
  for (const int rank : ByNeed(needs)) {
    if (!matching.Add(rank)) return rank;
  }
  return std::nullopt;
}

// Without the needs of one tier.
std::vector<TierBytes> Without(plan::Tier tier, std::vector<TierBytes> needs) {
  for (TierBytes& each : needs) {
    if (tier == plan::Tier::kDevice) each.device = 0;
    if (tier == plan::Tier::kHost) each.host = 0;
    if (tier == plan::Tier::kNvme) each.nvme = 0;
  }
  return needs;
}

// Of tiers that are each enough, but not together: of the first one without which they are.
MemoryShortage CombinedShortage(int rank, const std::vector<TierBytes>& needs,
                                const std::vector<TierBytes>& has) {
  MemoryShortage shortage;
  for (const plan::Tier tier : kTiers) {
    shortage.tier = tier;
    if (!FirstWithout(Without(tier, needs), has).has_value()) break;
  }
  const plan::Tier tier = shortage.tier;
  shortage.is_combined = true;
  shortage.global_rank = rank;
  shortage.needed_bytes = needs[rank].of(tier);
  for (const TierBytes& each : needs) shortage.ranks += each.covers(needs[rank]) ? 1 : 0;
  for (const TierBytes& each : has) {
    shortage.workers += each.covers(needs[rank]) ? 1 : 0;
    shortage.largest_bytes = std::max(shortage.largest_bytes, each.of(tier));
  }
  return shortage;
}

// Ranks get workers one group at a time; what is not yet given stays enough for all others.
class Placer {
 public:
  Placer(const std::vector<TierBytes>& needs, const std::vector<Candidate>& idle)
      : needs_(needs), idle_(idle), worker_of_(needs.size(), kNobody), is_free_(idle.size(), true) {
    std::map<std::string, std::vector<int>> by_host;
    for (int i = 0; i < static_cast<int>(idle.size()); ++i) by_host[idle[i].host_id].push_back(i);
    for (auto& [host_id, workers] : by_host) hosts_.push_back(std::move(workers));
    for (std::vector<int>& workers : hosts_) {
      std::sort(workers.begin(), workers.end(), [&](int a, int b) {
        // Not by what is free on their disks, which is another number every time.
        return std::tie(idle[a].has.device, idle[a].has.host, idle[a].worker) <
               std::tie(idle[b].has.device, idle[b].has.host, idle[b].worker);
      });
    }
    std::stable_sort(hosts_.begin(), hosts_.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }

  // All of the ranks on one host; false, and nothing given, where that cannot be.
  bool PlaceInsideAHost(const std::vector<int>& ranks) {
    return std::any_of(hosts_.begin(), hosts_.end(), [&](const std::vector<int>& host) {
      return Place(ranks, host) && (RestIsEnough() || Undo(ranks));
    });
  }

  // There is a worker, as the rest has been enough.
  void PlaceAnywhere(int rank) {
    for (const std::vector<int>& host : hosts_) {
      for (const int worker : host) {
        if (Place({rank}, {worker}) && (RestIsEnough() || Undo({rank}))) return;
      }
    }
  }

  int worker_of(int rank) const { return worker_of_[rank]; }

 private:
  bool Place(const std::vector<int>& ranks, const std::vector<int>& workers) {
    for (const int rank : ranks) {
      const auto worker = std::find_if(workers.begin(), workers.end(), [&](int candidate) {
        return is_free_[candidate] && idle_[candidate].has.covers(needs_[rank]);
      });
      if (worker == workers.end()) {
        Undo(ranks);
        return false;
      }
      worker_of_[rank] = *worker;
      is_free_[*worker] = false;
    }
    return true;
  }

  // Always false.
  bool Undo(const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      if (worker_of_[rank] != kNobody) is_free_[worker_of_[rank]] = true;
      worker_of_[rank] = kNobody;
    }
    return false;
  }

  bool RestIsEnough() const {
    std::vector<TierBytes> needs, has;
    for (size_t rank = 0; rank < needs_.size(); ++rank) {
      if (worker_of_[rank] == kNobody) needs.push_back(needs_[rank]);
    }
    for (size_t worker = 0; worker < idle_.size(); ++worker) {
      if (is_free_[worker]) has.push_back(idle_[worker].has);
    }
    return !FindShortage(needs, has).has_value();
  }

  const std::vector<TierBytes>& needs_;
  const std::vector<Candidate>& idle_;
  std::vector<std::vector<int>> hosts_;  // indexes into idle_
  std::vector<int> worker_of_;           // by rank, indexes into idle_ or kNobody
  std::vector<bool> is_free_;            // by index into idle_
};

}  // namespace

int64_t TierBytes::of(plan::Tier tier) const {
  switch (tier) {
    case plan::Tier::kDevice:
      return device;
    case plan::Tier::kHost:
      return host;
    case plan::Tier::kNvme:
      return nvme;
  }
  return 0;
}

std::vector<TierBytes> BytesOf(const std::vector<Candidate>& candidates) {
  std::vector<TierBytes> bytes;
  bytes.reserve(candidates.size());
  for (const Candidate& candidate : candidates) bytes.push_back(candidate.has);
  return bytes;
}

std::optional<MemoryShortage> FindShortage(const std::vector<TierBytes>& needs,
                                           const std::vector<TierBytes>& has) {
  int tiers = 0;  // that are needed at all
  for (const plan::Tier tier : kTiers) {
    const bool is_needed = std::any_of(needs.begin(), needs.end(),
                                       [&](const TierBytes& rank) { return rank.of(tier) > 0; });
    tiers += is_needed ? 1 : 0;
    if (!is_needed) continue;
    if (const auto shortage = ShortageOf(tier, needs, has); shortage.has_value()) return shortage;
  }
  if (tiers <= 1) return std::nullopt;
  const std::optional<int> rank = FirstWithout(needs, has);
  if (!rank.has_value()) return std::nullopt;
  return CombinedShortage(*rank, needs, has);
}

absl::StatusOr<std::vector<std::string>> PlaceRanks(const plan::MeshSize& mesh,
                                                    const std::vector<TierBytes>& needs,
                                                    const std::vector<Candidate>& idle) {
  const int world_size = mesh.world_size();
  if (static_cast<int>(idle.size()) < world_size) {
    return absl::FailedPreconditionError(
        absl::StrCat("needs ", world_size, " idle workers, ", idle.size(), " are idle"));
  }
  if (const auto shortage = FindShortage(needs, BytesOf(idle)); shortage.has_value()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "global_rank ", shortage->global_rank, " needs ", shortage->needed_bytes, " bytes of ",
        plan::TierName(shortage->tier), ", ", shortage->workers, " idle workers have as much"));
  }

  Placer placer(needs, idle);
  auto needs_more = [&](int a, int b) { return needs[a] > needs[b]; };
  std::vector<std::vector<int>> groups(world_size / mesh.tp);
  for (int rank = 0; rank < world_size; ++rank) groups[rank / mesh.tp].push_back(rank);
  for (std::vector<int>& group : groups) std::stable_sort(group.begin(), group.end(), needs_more);
  std::vector<int> rest;
  for (const std::vector<int>& group : groups) {
    if (!placer.PlaceInsideAHost(group)) rest.insert(rest.end(), group.begin(), group.end());
  }
  std::stable_sort(rest.begin(), rest.end(), needs_more);
  for (const int rank : rest) placer.PlaceAnywhere(rank);

  std::vector<std::string> placed;
  for (int rank = 0; rank < world_size; ++rank) {
    placed.push_back(idle[placer.worker_of(rank)].worker);
  }
  return placed;
}

}  // namespace tessera
