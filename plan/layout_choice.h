// What of a job's layout may be chosen anew without changing what is trained, and which values each
// choice has.
#ifndef TESSERA_PLAN_LAYOUT_CHOICE_H_
#define TESSERA_PLAN_LAYOUT_CHOICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "plan/ledger.h"
#include "plan/mesh.h"
#include "plan/stage_partition.h"

namespace tessera::plan {

enum class LayoutField : uint8_t {
  kZeroStage,
  kRecompute,
  kGradientReduction,
  kMicroBatches,
  kDp,
  kCp,
  kPp,
  kTp,
};
inline constexpr LayoutField kLayoutFields[] = {
    LayoutField::kZeroStage,    LayoutField::kRecompute, LayoutField::kGradientReduction,
    LayoutField::kMicroBatches, LayoutField::kDp,        LayoutField::kCp,
    LayoutField::kPp,           LayoutField::kTp};
// "spec.zero_stage", "spec.mesh.dp", ...: the path in TrainingJobSpec.
const char* LayoutFieldName(LayoutField field);
// Of spec.mesh.
bool IsAxis(LayoutField field);

// A whole job. The ledger's request without job.chunks, pp_rank.
struct LayoutJob {
  LedgerRequest request;
  std::vector<int> chunk_layers;  // explicit partition; empty: balanced

  int64_t global_batch_size() const {
    return request.job.micro_batch_size * request.job.micro_batches * request.job.mesh.dp;
  }
};

// A value for each field; enums by their number.
class LayoutChoice {
 public:
  LayoutChoice() = default;
  static LayoutChoice Of(const LayoutJob& job);

  int64_t of(LayoutField field) const { return values_[static_cast<size_t>(field)]; }
  void Set(LayoutField field, int64_t value) { values_[static_cast<size_t>(field)] = value; }
  MeshSize mesh() const;

  // The job with these values and the same global batch. Where pp changes, the partition is
  // balanced. Nothing: it cannot be trained (CheckLayout, or the batch does not divide), or more
  // ranks than `ranks` are needed.
  std::optional<LayoutJob> ApplyTo(const LayoutJob& job, int ranks) const;

  friend auto operator<=>(const LayoutChoice&, const LayoutChoice&) = default;

 private:
  std::array<int64_t, std::size(kLayoutFields)> values_ = {};
};

// How much a field changes: steps of an enum or of zero_stage, doublings of a number.
double AmountOfChange(LayoutField field, int64_t from, int64_t to);

// Values of a field, other than the job's, that may make a rank smaller; the nearest first, and no
// more than kMaxFieldValues. zero_stage, recompute and micro_batches only grow.
inline constexpr int kMaxFieldValues = 16;
std::vector<int64_t> ValuesOf(const LayoutJob& job, LayoutField field, int ranks);

// Chunks of each pp_rank. REQUIRES: CheckLayout has no fault.
std::vector<std::vector<StageChunk>> StagesOf(const LayoutJob& job);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LAYOUT_CHOICE_H_
