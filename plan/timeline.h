// A timeline of what workers did or would do: simulated and measured ones alike are drawn by
// plan/timeline_svg.h and written for trace viewers by plan/trace_events.h.
#ifndef TESSERA_PLAN_TIMELINE_H_
#define TESSERA_PLAN_TIMELINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tessera::plan {

enum class SliceCategory : uint8_t {
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kSend,
  kReceive,
  kCollective,
  kOptimizer,
  kIdle,
  kOther,
};
inline constexpr SliceCategory kSliceCategories[] = {
    SliceCategory::kForward,        SliceCategory::kBackward,  SliceCategory::kBackwardInput,
    SliceCategory::kBackwardWeight, SliceCategory::kSend,      SliceCategory::kReceive,
    SliceCategory::kCollective,     SliceCategory::kOptimizer, SliceCategory::kIdle,
    SliceCategory::kOther};
// "forward", "backward", "backward_input", ...
const char* SliceCategoryName(SliceCategory category);

// Every member has an initializer, so that designated ones may leave some out without a warning.
struct TimelineSlice {
  int row = 0;                     // index into Timeline::row_names
  std::string name = {};           // UTF-8
  std::string stream = "compute";  // of the row's, such as "compute", "send"; UTF-8
  SliceCategory category = SliceCategory::kOther;
  double begin_s = 0;  // from any common origin
  double end_s = 0;
  int micro_batch = -1;  // -1: of none
  int chunk = -1;
};

// Something sent: from the slice that sends to the one that receives.
struct TimelineFlow {
  int from_slice = 0;  // indexes into Timeline::slices
  int to_slice = 0;
};

struct Timeline {
  std::string title = {};                   // UTF-8
  std::vector<std::string> row_names = {};  // one for each worker or stage: "pp_rank 0"; UTF-8
  std::vector<TimelineSlice> slices = {};   // in any order
  std::vector<TimelineFlow> flows = {};
};

// INVALID_ARGUMENT naming the slice or flow: a row or slice that is not there, a time that is not
// finite, an end before its begin.
absl::Status CheckTimeline(const Timeline& timeline);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_TIMELINE_H_
