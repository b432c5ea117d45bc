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

// Ranks get workers one group at a time; what is not yet given stays enough for all others.
class Placer {
 public:
  Placer(const std::vector<int64_t>& needed_bytes, const std::vector<Candidate>& idle)
      : needed_(needed_bytes),
        idle_(idle),
        worker_of_(needed_bytes.size(), kNobody),
        is_free_(idle.size(), true) {
    std::map<std::string, std::vector<int>> by_host;
    for (int i = 0; i < static_cast<int>(idle.size()); ++i) by_host[idle[i].host_id].push_back(i);
    for (auto& [host_id, workers] : by_host) hosts_.push_back(std::move(workers));
    for (std::vector<int>& workers : hosts_) {
      std::sort(workers.begin(), workers.end(), [&](int a, int b) {
        return std::tie(idle[a].memory_bytes, idle[a].worker) <
               std::tie(idle[b].memory_bytes, idle[b].worker);
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

  // In descending order of need any worker that is enough may be taken: whoever needs less can use
  // what is enough for more.
  void PlaceAnywhere(int rank) {
    for (const std::vector<int>& host : hosts_) {
      if (Place({rank}, host)) return;
    }
  }

  int worker_of(int rank) const { return worker_of_[rank]; }

 private:
  bool Place(const std::vector<int>& ranks, const std::vector<int>& host) {
    for (const int rank : ranks) {
      const auto worker = std::find_if(host.begin(), host.end(), [&](int candidate) {
        return idle_[candidate].memory_bytes >= needed_[rank] && is_free_[candidate];
      });
      if (worker == host.end()) {
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
    std::vector<int64_t> needed;
    for (size_t rank = 0; rank < needed_.size(); ++rank) {
      if (worker_of_[rank] == kNobody) needed.push_back(needed_[rank]);
    }
    std::vector<int64_t> memory;
    for (int worker = 0; worker < static_cast<int>(idle_.size()); ++worker) {
      if (is_free_[worker]) memory.push_back(idle_[worker].memory_bytes);
    }
    return !FindShortage(needed, memory).has_value();
  }

  const std::vector<int64_t>& needed_;
  const std::vector<Candidate>& idle_;
  std::vector<std::vector<int>> hosts_;  // indexes into idle_
  std::vector<int> worker_of_;           // by rank, indexes into idle_ or kNobody
  std::vector<bool> is_free_;            // by index into idle_
};

}  // namespace

std::optional<MemoryShortage> FindShortage(const std::vector<int64_t>& needed_bytes,
                                           const std::vector<int64_t>& memory_bytes) {
  std::vector<int> ranks(needed_bytes.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return needed_bytes[a] > needed_bytes[b]; });
  std::vector<int64_t> memory = memory_bytes;
  std::sort(memory.begin(), memory.end(), std::greater<>());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t needed = needed_bytes[ranks[i]];
    if (needed <= memory[i]) continue;
    auto have = [&](int64_t bytes) { return bytes >= needed; };
    return MemoryShortage{
        .global_rank = ranks[i],
        .needed_bytes = needed,
        .ranks = static_cast<int>(std::count_if(needed_bytes.begin(), needed_bytes.end(), have)),
        .workers = static_cast<int>(std::count_if(memory.begin(), memory.end(), have)),
        .largest_bytes = memory[0]};
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<std::string>> PlaceRanks(const plan::MeshSize& mesh,
                                                    const std::vector<int64_t>& needed_bytes,
                                                    const std::vector<Candidate>& idle) {
  const int world_size = mesh.world_size();
  if (static_cast<int>(idle.size()) < world_size) {
    return absl::FailedPreconditionError(
        absl::StrCat("needs ", world_size, " idle workers, ", idle.size(), " are idle"));
  }
  std::vector<int64_t> memory;
  for (const Candidate& candidate : idle) memory.push_back(candidate.memory_bytes);
  if (const auto shortage = FindShortage(needed_bytes, memory); shortage.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("global_rank ", shortage->global_rank, " needs ", shortage->needed_bytes,
                     " bytes, ", shortage->workers, " idle workers have as much"));
  }

  Placer placer(needed_bytes, idle);
  auto needs_more = [&](int a, int b) { return needed_bytes[a] > needed_bytes[b]; };
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
