#include "coordinator/preemption.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace tessera {
namespace {

// Indexes into the jobs.
using Choice = std::vector<size_t>;

class Chooser {
 public:
  Chooser(const plan::MeshSize& mesh, const std::vector<TierBytes>& needs,
          const std::vector<Candidate>& free, const std::vector<PreemptibleJob>& jobs)
      : mesh_(mesh), needs_(needs), free_(free), jobs_(jobs) {}

  bool IsEnough(const Choice& choice) const {
    std::vector<Candidate> workers = free_;
    for (const size_t job : choice) {
      workers.insert(workers.end(), jobs_[job].workers.begin(), jobs_[job].workers.end());
    }
    return PlaceRanks(mesh_, needs_, workers).ok();
  }

  // The first of `size` of the jobs in their order that is enough. Nothing also when too many have
  // been tried.
  std::optional<Choice> FirstOfSize(const Choice& order, size_t size) {
    std::vector<size_t> picks(size);
    std::iota(picks.begin(), picks.end(), 0);
    while (tried_ < kMaxChoices) {
      ++tried_;
      Choice choice;
      for (const size_t pick : picks) choice.push_back(order[pick]);
      if (IsEnough(choice)) return choice;
      size_t last = size;  // the last pick that can move on
      while (last > 0 && picks[last - 1] == order.size() - size + last - 1) --last;
      if (last == 0) return std::nullopt;
      ++picks[last - 1];
      for (size_t i = last; i < size; ++i) picks[i] = picks[i - 1] + 1;
    }
    return std::nullopt;
  }

  // All of them but those that are not needed, dearest first.
  Choice Pruned(const Choice& order) const {
    Choice choice = order;
    for (size_t i = order.size(); i-- > 0;) {
      Choice fewer = choice;
      fewer.erase(std::find(fewer.begin(), fewer.end(), order[i]));
      if (IsEnough(fewer)) choice = std::move(fewer);
    }
    return choice;
  }

  bool is_tired() const { return tried_ >= kMaxChoices; }

 private:
  const plan::MeshSize mesh_;
  const std::vector<TierBytes>& needs_;
  const std::vector<Candidate>& free_;
  const std::vector<PreemptibleJob>& jobs_;
  int tried_ = 0;
};

}  // namespace

std::optional<std::vector<size_t>> ChoosePreempted(const plan::MeshSize& mesh,
                                                   const std::vector<TierBytes>& needs,
                                                   const std::vector<Candidate>& free,
                                                   const std::vector<PreemptibleJob>& jobs) {
  Chooser chooser(mesh, needs, free, jobs);
  Choice order(jobs.size());  // cheapest first
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(jobs[a].priority, jobs[b].create_time_ns, jobs[a].name) <
           std::tie(jobs[b].priority, jobs[a].create_time_ns, jobs[b].name);
  });
  if (!chooser.IsEnough(order)) return std::nullopt;
  // No more of them than up to the lowest priority that is enough.
  auto end_of_priority = [&](size_t begin) {
    size_t end = begin;
    while (end < order.size() && jobs[order[end]].priority == jobs[order[begin]].priority) ++end;
    return end;
  };
  Choice allowed;
  while (!chooser.IsEnough(allowed)) {
    const size_t end = end_of_priority(allowed.size());
    allowed.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(end));
  }
  Choice choice = allowed;
  for (size_t size = 0; size <= allowed.size(); ++size) {
    if (const auto first = chooser.FirstOfSize(allowed, size); first.has_value()) {
      choice = *first;
      break;
    }
    if (!chooser.is_tired()) continue;
    choice = chooser.Pruned(allowed);
    break;
  }
  std::sort(choice.begin(), choice.end());
  return choice;
}

}  // namespace tessera
