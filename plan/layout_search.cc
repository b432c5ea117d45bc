#include "plan/layout_search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace tessera::plan {
namespace {

// Of LayoutFields.
using FieldSet = unsigned;
constexpr int kNumFields = std::size(kLayoutFields);

bool Contains(FieldSet set, int field) { return (set >> field & 1) != 0; }
bool IsSubset(FieldSet part, FieldSet set) { return (part & ~set) == 0; }

int SizeOf(FieldSet set) {
  int size = 0;
  for (int i = 0; i < kNumFields; ++i) size += Contains(set, i) ? 1 : 0;
  return size;
}

int AxesOf(FieldSet set) {
  int axes = 0;
  for (int i = 0; i < kNumFields; ++i) axes += Contains(set, i) && IsAxis(kLayoutFields[i]) ? 1 : 0;
  return axes;
}

int LargestStage(const std::vector<std::vector<StageChunk>>& stages) {
  std::vector<int> layers(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const StageChunk& chunk : stages[i]) layers[i] += chunk.layers.count;
  }
  return static_cast<int>(std::max_element(layers.begin(), layers.end()) - layers.begin());
}

int RanksOfAStage(const LayoutJob& job) {
  return job.request.job.mesh.world_size() / job.request.job.mesh.pp;
}

struct Candidate {
  LayoutChoice choice;
  double amount = 0;

  // Equal amounts: the rest only decides once and for all.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return std::tie(a.amount, a.choice) < std::tie(b.amount, b.choice);
  }
};

class Search {
 public:
  explicit Search(const LayoutSearchRequest& request);

  std::vector<FittingLayout> Run();

 private:
  struct Found {
    FieldSet set = 0;
    Candidate candidate;
    FittingLayout layout;
  };

  // The nearest that fits of those that change these fields and no other.
  std::optional<Found> FindOf(FieldSet set);
  std::vector<Candidate> CandidatesOf(FieldSet set) const;
  const std::vector<std::vector<StageChunk>>& StagesFor(const LayoutJob& job);
  // By a lower bound of some stages: the ends, and the one with most layers.
  bool MayFit(const LayoutJob& job, const std::vector<std::vector<StageChunk>>& stages) const;
  std::optional<FittingLayout> Fit(const LayoutJob& job,
                                   const std::vector<std::vector<StageChunk>>& stages) const;
  // Layouts that change `size` fields, in order.
  std::vector<Found> FindOfSize(int size, const std::vector<Found>& nearer);

  const LayoutSearchRequest& request_;
  const LayoutChoice asked_;
  std::vector<int64_t> largest_first_;                          // of request_.device_bytes
  std::vector<std::vector<int64_t>> values_;                    // by field
  std::map<int, std::vector<std::vector<StageChunk>>> stages_;  // by pp, which alone decides
};

Search::Search(const LayoutSearchRequest& request)
    : request_(request),
      asked_(LayoutChoice::Of(request.job)),
      largest_first_(request.device_bytes) {
  std::sort(largest_first_.begin(), largest_first_.end(), std::greater<>());
  for (const LayoutField field : kLayoutFields) {
    values_.push_back(ValuesOf(request.job, field, request.ranks()));
  }
}

std::vector<Candidate> Search::CandidatesOf(FieldSet set) const {
  std::vector<Candidate> candidates = {{asked_, 0}};
  for (int i = 0; i < kNumFields; ++i) {
    if (!Contains(set, i)) continue;
    const LayoutField field = kLayoutFields[i];
    std::vector<Candidate> next;
    for (const Candidate& each : candidates) {
      for (const int64_t value : values_[i]) {
        Candidate changed = each;
        changed.choice.Set(field, value);
        changed.amount += AmountOfChange(field, asked_.of(field), value);
        next.push_back(changed);
      }
    }
    candidates = std::move(next);
  }
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

const std::vector<std::vector<StageChunk>>& Search::StagesFor(const LayoutJob& job) {
  const auto [at, is_new] = stages_.try_emplace(job.request.job.mesh.pp);
  if (is_new) at->second = StagesOf(job);
  return at->second;
}

bool Search::MayFit(const LayoutJob& job,
                    const std::vector<std::vector<StageChunk>>& stages) const {
  LedgerRequest request = job.request;
  const int last = static_cast<int>(stages.size()) - 1;
  for (const int pp_rank : {0, LargestStage(stages), last}) {
    request.pp_rank = pp_rank;
    request.job.chunks = stages[pp_rank];
    // Each rank of the stage needs a device that is as large.
    if (PredictLeastBytes(request) > largest_first_[RanksOfAStage(job) - 1]) return false;
  }
  return true;
}

std::optional<FittingLayout> Search::Fit(const LayoutJob& job,
                                         const std::vector<std::vector<StageChunk>>& stages) const {
  const std::vector<RankLedger> ledgers = PredictLedgers(job.request, stages);
  const auto worst = std::max_element(
      ledgers.begin(), ledgers.end(),
      [](const RankLedger& a, const RankLedger& b) { return a.needed_bytes() < b.needed_bytes(); });
  std::vector<int64_t> needed;  // by all ranks, most first
  for (const RankLedger& ledger : ledgers) {
    needed.insert(needed.end(), RanksOfAStage(job), ledger.needed_bytes());
  }
  std::sort(needed.begin(), needed.end(), std::greater<>());
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i] > largest_first_[i]) return std::nullopt;
  }
  return FittingLayout{job, {}, static_cast<int>(worst - ledgers.begin()), *worst};
}

std::optional<Search::Found> Search::FindOf(FieldSet set) {
  int layouts = 0, ledgers = 0;
  for (const Candidate& candidate : CandidatesOf(set)) {
    const std::optional<LayoutJob> job = candidate.choice.ApplyTo(request_.job, request_.ranks());
    if (!job) continue;
    if (layouts++ == kMaxLayoutsOfSet) return std::nullopt;
    const std::vector<std::vector<StageChunk>>& stages = StagesFor(*job);
    if (!MayFit(*job, stages)) continue;
    if (ledgers++ == kMaxLedgersOfSet) return std::nullopt;
    std::optional<FittingLayout> layout = Fit(*job, stages);
    if (!layout) continue;
    for (int i = 0; i < kNumFields; ++i) {
      if (Contains(set, i)) layout->changed.push_back(kLayoutFields[i]);
    }
    return Found{set, candidate, *std::move(layout)};
  }
  return std::nullopt;
}

std::vector<Search::Found> Search::FindOfSize(int size, const std::vector<Found>& nearer) {
  std::vector<Found> found;
  for (FieldSet set = 0; set < 1u << kNumFields; ++set) {
    if (SizeOf(set) != size) continue;
    const bool is_more_than_enough = std::any_of(
        nearer.begin(), nearer.end(), [&](const Found& each) { return IsSubset(each.set, set); });
    if (is_more_than_enough) continue;
    if (std::optional<Found> each = FindOf(set)) found.push_back(*std::move(each));
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    const int a_axes = AxesOf(a.set), b_axes = AxesOf(b.set);
    return std::tie(a_axes, a.candidate) < std::tie(b_axes, b.candidate);
  });
  return found;
}

std::vector<FittingLayout> Search::Run() {
  std::vector<Found> found;
  const auto wanted = static_cast<size_t>(std::max(request_.max_results, 0));
  for (int size = 1; size <= kMaxChangedFields && found.size() < wanted; ++size) {
    std::vector<Found> more = FindOfSize(size, found);
    found.insert(found.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  }
  if (found.size() > wanted) found.resize(wanted);
  std::vector<FittingLayout> layouts;
  for (Found& each : found) layouts.push_back(std::move(each.layout));
  return layouts;
}

}  // namespace

std::vector<FittingLayout> FindFittingLayouts(const LayoutSearchRequest& request) {
  return Search(request).Run();
}

}  // namespace tessera::plan
