// Chrome trace events: what Perfetto (ui.perfetto.dev) and chrome://tracing open.
// Format: "Trace Event Format", the JSON object form, by Google.
#ifndef TESSERA_PLAN_TRACE_EVENTS_H_
#define TESSERA_PLAN_TRACE_EVENTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/timeline.h"

namespace tessera::plan {

// Complete events ("X") for slices, metadata ("M") that names one process per row and one thread
// per stream, flow events ("s", "f") for flows; times in microseconds with three decimals, from the
// first slice. args: micro_batch and chunk where a slice has them. Errors as CheckTimeline.
absl::StatusOr<std::string> TraceEventsJson(const Timeline& timeline);

// A JSON string with its quotes. REQUIRES: text is UTF-8.
std::string JsonString(absl::string_view text);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_TRACE_EVENTS_H_
