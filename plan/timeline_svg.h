// Draws a timeline as SVG: one row for each worker or stage, boxes by kind, time to the right.
#ifndef TESSERA_PLAN_TIMELINE_SVG_H_
#define TESSERA_PLAN_TIMELINE_SVG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/timeline.h"

namespace tessera::plan {

struct SvgOptions {
  int width_px = 1200;      // at least 400
  bool draw_flows = false;  // a thin line for each message; crowded with many micro-batches
};

// A standalone XML document without scripts or references. Boxes carry the micro-batch number where
// it fits, a higher chunk is a paler box, and each box has a tooltip with its times. Sends and
// receives are thin strips below the boxes, since they overlap them; a slice without duration is
// not drawn. Errors as CheckTimeline; INVALID_ARGUMENT for a width below 400.
absl::StatusOr<std::string> TimelineSvg(const Timeline& timeline, const SvgOptions& options = {});

// Text for XML content and attributes; characters that XML forbids become spaces.
// REQUIRES: text is UTF-8.
std::string XmlText(absl::string_view text);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_TIMELINE_SVG_H_
