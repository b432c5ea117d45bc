#include "coordinator/memory_shortage.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/layout_advice.h"
#include "plan/ledger.h"
#include "plan/mesh.h"
#include "proto/rpc/field_error.h"

namespace tessera {

std::string ShortageText(const JobMemory& memory, const MemoryShortage& shortage, size_t workers) {
  const int rank = shortage.global_rank;
  return absl::StrCat(
      "device memory: pp_rank ", plan::CoordinatesOf(memory.mesh(), rank).pp_rank, " needs ",
      BytesText(shortage.needed_bytes), " (",
      memory.NeedsWholeModel(rank) ? "the whole model, which global_rank 0 verifies against; " : "",
      CategoriesText(memory.Needed(rank)), "); ", shortage.ranks, " of ",
      memory.mesh().world_size(), " ranks need as much, ", shortage.workers, " of ", workers,
      " attached workers have as much, the largest has ", BytesText(shortage.largest_bytes));
}

absl::Status InsufficientMemory(const v1::TrainingJobSpec& spec, const JobMemory& memory,
                                const MemoryShortage& shortage,
                                const std::vector<int64_t>& memory_bytes) {
  std::string text = ShortageText(memory, shortage, memory_bytes.size());
  std::vector<std::string> layouts;
  // Another layout does not make the whole model smaller.
  if (!memory.NeedsWholeModel(shortage.global_rank)) {
    layouts = LayoutsThatFit(spec, memory_bytes, memory.num_threads());
  }
  if (layouts.empty()) {
    absl::StrAppend(&text, "; no layout nearby fits");
  } else {
    absl::StrAppend(&text, ". The nearest layouts that fit, as lines of the job file:\n",
                    absl::StrJoin(layouts, "\n"));
  }
  return WithReason(absl::ResourceExhaustedError(text), kInsufficientDeviceMemory);
}

}  // namespace tessera
