#include "plan/timeline.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace tessera::plan {

const char* SliceCategoryName(SliceCategory category) {
  switch (category) {
    case SliceCategory::kForward:
      return "forward";
    case SliceCategory::kBackward:
      return "backward";
    case SliceCategory::kBackwardInput:
      return "backward_input";
    case SliceCategory::kBackwardWeight:
      return "backward_weight";
    case SliceCategory::kSend:
      return "send";
    case SliceCategory::kReceive:
      return "receive";
    case SliceCategory::kCollective:
      return "collective";
    case SliceCategory::kOptimizer:
      return "optimizer";
    case SliceCategory::kIdle:
      return "idle";
    case SliceCategory::kOther:
      return "other";
  }
  return "unknown";
}

absl::Status CheckTimeline(const Timeline& timeline) {
  auto in = [](int index, size_t size) { return index >= 0 && static_cast<size_t>(index) < size; };
  for (size_t i = 0; i < timeline.slices.size(); ++i) {
    const TimelineSlice& slice = timeline.slices[i];
    const std::string where = absl::StrCat("slices[", i, "]");
    if (!in(slice.row, timeline.row_names.size())) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".row: ", slice.row, ": there are ",
                                                     timeline.row_names.size(), " rows"));
    }
    if (!std::isfinite(slice.begin_s) || !std::isfinite(slice.end_s) ||
        slice.end_s < slice.begin_s) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": from ", slice.begin_s, " s to ",
                                                     slice.end_s,
                                                     " s: must be finite and not end earlier"));
    }
  }
  for (size_t i = 0; i < timeline.flows.size(); ++i) {
    for (int slice : {timeline.flows[i].from_slice, timeline.flows[i].to_slice}) {
      if (in(slice, timeline.slices.size())) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "flows[", i, "]: slice ", slice, ": there are ", timeline.slices.size(), " slices"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::plan
