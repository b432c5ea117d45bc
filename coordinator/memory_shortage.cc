#include "coordinator/memory_shortage.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/layout_advice.h"
#include "plan/ledger.h"
#include "plan/mesh.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

const char* KindOf(plan::Tier tier) {
  switch (tier) {
    case plan::Tier::kDevice:
      return "device memory";
    case plan::Tier::kHost:
      return "host memory";
    case plan::Tier::kNvme:
      return "nvme space";
  }
  return "memory";
}

// What the bytes are for.
std::string PurposeOf(const JobMemory& memory, const MemoryShortage& shortage) {
  switch (shortage.tier) {
    case plan::Tier::kDevice:
      return absl::StrCat(memory.NeedsWholeModel(shortage.global_rank)
                              ? "the whole model, which global_rank 0 verifies against; "
                              : "",
                          CategoriesText(memory.Needed(shortage.global_rank)));
    case plan::Tier::kHost:
      return "offloaded state and the buffers through which it passes";
    case plan::Tier::kNvme:
      return "offloaded state, two steps of what is committed";
  }
  return "";
}

constexpr size_t kMostNamed = 4;  // workers in one message

// "workers/w1 has 5 B (5 bytes) of host memory" of each that has too little for the rank, in order.
std::string TooSmallText(const MemoryShortage& shortage, const TierBytes& needs,
                         const std::vector<Candidate>& workers) {
  std::vector<std::string> texts;
  for (const Candidate& worker : workers) {
    for (const plan::Tier tier : kTiers) {
      // Where no tier is short by itself, what a worker has too little of differs.
      if (!shortage.is_combined && tier != shortage.tier) continue;
      if (worker.has.of(tier) >= needs.of(tier)) continue;
      texts.push_back(absl::StrCat(worker.worker, " has ", BytesText(worker.has.of(tier)), " of ",
                                   KindOf(tier)));
      break;
    }
  }
  if (texts.size() <= kMostNamed) return absl::StrJoin(texts, ", ");
  return absl::StrCat(absl::StrJoin(texts.begin(), texts.begin() + kMostNamed, ", "), " and ",
                      texts.size() - kMostNamed, " more have too little");
}

}  // namespace

std::string ShortageReason(plan::Tier tier) {
  switch (tier) {
    case plan::Tier::kDevice:
      return "INSUFFICIENT_DEVICE_MEMORY";
    case plan::Tier::kHost:
      return "INSUFFICIENT_HOST_MEMORY";
    case plan::Tier::kNvme:
      return "INSUFFICIENT_NVME_SPACE";
  }
  return "INSUFFICIENT_MEMORY";
}

std::string ShortageText(const JobMemory& memory, const MemoryShortage& shortage,
                         const std::vector<Candidate>& workers) {
  const TierBytes needs = memory.Needs()[shortage.global_rank];
  std::string text =
      absl::StrCat(KindOf(shortage.tier), ": pp_rank ",
                   plan::CoordinatesOf(memory.mesh(), shortage.global_rank).pp_rank, " needs ",
                   BytesText(shortage.needed_bytes), " (", PurposeOf(memory, shortage), "); ",
                   shortage.ranks, " of ", memory.mesh().world_size(), " ranks need as much, ",
                   shortage.workers, " of ", workers.size(), " attached workers have as much",
                   shortage.is_combined ? " besides all else that the rank needs" : "",
                   ", the largest has ", BytesText(shortage.largest_bytes));
  const std::string too_small = TooSmallText(shortage, needs, workers);
  if (!too_small.empty()) absl::StrAppend(&text, "; ", too_small);
  return text;
}

absl::Status InsufficientMemory(const v1::TrainingJobSpec& spec, const JobMemory& memory,
                                const MemoryShortage& shortage,
                                const std::vector<Candidate>& workers) {
  std::string text = ShortageText(memory, shortage, workers);
  const std::vector<TierBytes> has = BytesOf(workers);
  std::vector<std::string> layouts;
  // Another layout does not make the whole model smaller.
  if (!memory.NeedsWholeModel(shortage.global_rank)) {
    layouts = LayoutsThatFit(spec, has, memory.num_threads());
    for (std::string& offload : OffloadsThatFit(spec, has, memory.num_threads())) {
      layouts.push_back(std::move(offload));
    }
  }
  if (layouts.empty()) {
    absl::StrAppend(&text, "; no layout nearby fits");
  } else {
    absl::StrAppend(&text, ". The nearest layouts that fit, as lines of the job file:\n",
                    absl::StrJoin(layouts, "\n"));
  }
  return WithReason(absl::ResourceExhaustedError(text), ShortageReason(shortage.tier));
}

std::optional<WorkerShortfall> FindShortfall(const Candidate& worker, int global_rank,
                                             const TierBytes& needs) {
  for (const plan::Tier tier : kTiers) {
    if (worker.has.of(tier) >= needs.of(tier)) continue;
    return WorkerShortfall{
        tier, absl::StrCat(KindOf(tier), ": global_rank ", global_rank, " needs ",
                           BytesText(needs.of(tier)), ", ", worker.worker,
                           ", which holds its state, has ", BytesText(worker.has.of(tier)))};
  }
  return std::nullopt;
}

}  // namespace tessera
