#include "coordinator/placement.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::StatusOr<std::vector<std::string>> PlaceRanks(const plan::MeshSize& mesh,
                                                    const std::vector<Candidate>& idle) {
  const size_t world_size = mesh.world_size();
  if (idle.size() < world_size) {
    return absl::FailedPreconditionError(
        absl::StrCat("needs ", world_size, " idle workers, ", idle.size(), " are idle"));
  }
  std::map<std::string, std::vector<std::string>> hosts;
  for (const Candidate& candidate : idle) hosts[candidate.host_id].push_back(candidate.worker);
  std::vector<std::vector<std::string>> ordered;
  for (auto& [host_id, workers] : hosts) {
    std::sort(workers.begin(), workers.end());
    ordered.push_back(std::move(workers));
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });

  // Whole tp groups first, from the fullest host on; what then is left takes what is left.
  std::vector<std::string> placed;
  std::vector<std::string> rest;
  for (const auto& workers : ordered) {
    const size_t whole = workers.size() / mesh.tp * mesh.tp;
    for (size_t i = 0; i < workers.size(); ++i) {
      if (i < whole && placed.size() < world_size) {
        placed.push_back(workers[i]);
      } else {
        rest.push_back(workers[i]);
      }
    }
  }
  for (size_t i = 0; placed.size() < world_size; ++i) placed.push_back(rest[i]);
  return placed;
}

}  // namespace tessera
