// The layouts nearest to a job's that fit into its devices.
#ifndef TESSERA_PLAN_LAYOUT_SEARCH_H_
#define TESSERA_PLAN_LAYOUT_SEARCH_H_

#include <cstdint>
#include <vector>

#include "plan/layout_choice.h"
#include "plan/ledger.h"

namespace tessera::plan {

struct LayoutSearchRequest {
  LayoutJob job;                      // as it was asked for
  std::vector<int64_t> device_bytes;  // of each device that is available, in any order
  int max_results = 3;

  int ranks() const { return static_cast<int>(device_bytes.size()); }
};

struct FittingLayout {
  LayoutJob job;
  std::vector<LayoutField> changed;  // in the order of kLayoutFields
  int worst_pp_rank = 0;             // whose ranks need most
  RankLedger ledger;                 // of those
};

// Layouts of which every rank fits a device of its own, CheckLayout holds and the global batch is
// the job's, the nearest first: by the number of changed fields (an axis of the mesh is one), of
// those by the number of axes, so that layouts on the same mesh come first, of those by
// AmountOfChange. Of each set of changed fields only the nearest, and none where a part of its
// changed fields is enough. Empty: none is found. A function of the request alone.
//
// Bounded: at most kMaxChangedFields change; of each the kMaxFieldValues nearest values are tried
// (ValuesOf), of each set of fields the kMaxLayoutsOfSet nearest layouts by a quick lower bound
// (PredictLeastBytes), and the kMaxLedgersOfSet nearest that pass it in full. So a farther layout
// can be missed where all of these are too large. The work for one does not grow with
// micro_batches.
inline constexpr int kMaxChangedFields = 4;
inline constexpr int kMaxLayoutsOfSet = 128;
inline constexpr int kMaxLedgersOfSet = 8;
// REQUIRES: CheckLayout has no fault for the job; all sizes at least 1.
std::vector<FittingLayout> FindFittingLayouts(const LayoutSearchRequest& request);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_LAYOUT_SEARCH_H_
