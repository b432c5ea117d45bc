#include "plan/trace_events.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::plan {
namespace {

class TraceWriter {
 public:
  explicit TraceWriter(const Timeline& timeline) : timeline_(timeline) {
    if (timeline.slices.empty()) return;
    origin_s_ = timeline.slices[0].begin_s;
    for (const TimelineSlice& slice : timeline.slices) {
      origin_s_ = std::min(origin_s_, slice.begin_s);
    }
  }

  std::string Write() {
    NumberStreams();
    for (size_t row = 0; row < timeline_.row_names.size(); ++row) {
      const int pid = static_cast<int>(row);
      Metadata("process_name", pid, 0, JsonString(timeline_.row_names[row]), "name");
      Metadata("process_sort_index", pid, 0, absl::StrCat(row), "sort_index");
    }
    for (const auto& [stream, tid] : tids_) {
      Metadata("thread_name", stream.first, tid, JsonString(stream.second), "name");
      Metadata("thread_sort_index", stream.first, tid, absl::StrCat(tid), "sort_index");
    }
    for (const TimelineSlice& slice : timeline_.slices) Slice(slice);
    for (size_t i = 0; i < timeline_.flows.size(); ++i) Flow(i);
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":",
                        JsonString(timeline_.title), "},\"traceEvents\":[\n", events_, "\n]}\n");
  }

 private:
  // By first appearance, so that a stream has the same number and place in every row.
  void NumberStreams() {
    std::map<std::string, int> numbers;
    for (const TimelineSlice& slice : timeline_.slices) {
      const auto added = numbers.emplace(slice.stream, static_cast<int>(numbers.size()));
      tids_[{slice.row, slice.stream}] = added.first->second;
    }
  }

  void Event(const std::string& fields) {
    absl::StrAppend(&events_, events_.empty() ? "" : ",\n", "{", fields, "}");
  }

  void Metadata(const char* what, int pid, int tid, const std::string& value, const char* key) {
    Event(absl::StrCat("\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid, ",\"tid\":", tid,
                       ",\"args\":{\"", key, "\":", value, "}"));
  }

  std::string Microseconds(double seconds) const { return absl::StrFormat("%.3f", seconds * 1e6); }

  std::string At(const TimelineSlice& slice, double time_s) const {
    return absl::StrCat(",\"pid\":", slice.row, ",\"tid\":", tids_.at({slice.row, slice.stream}),
                        ",\"ts\":", Microseconds(time_s - origin_s_));
  }

  void Slice(const TimelineSlice& slice) {
    std::string args;
    if (slice.micro_batch >= 0) absl::StrAppend(&args, "\"micro_batch\":", slice.micro_batch);
    if (slice.chunk >= 0) {
      absl::StrAppend(&args, args.empty() ? "" : ",", "\"chunk\":", slice.chunk);
    }
    double duration_s = slice.end_s - slice.begin_s;
    // Viewers bind a flow to the slice that contains its time, which a slice without duration
    // never does, nor one at its end: a nanosecond longer.
    if (slice.category == SliceCategory::kSend || slice.category == SliceCategory::kReceive) {
      duration_s += 1e-9;
    }
    Event(absl::StrCat("\"ph\":\"X\",\"name\":", JsonString(slice.name), ",\"cat\":\"",
                       SliceCategoryName(slice.category), "\"", At(slice, slice.begin_s),
                       ",\"dur\":", Microseconds(duration_s), ",\"args\":{", args, "}"));
  }

  // From the begin of the send to the end of the receive, which may begin (to wait) earlier.
  void Flow(size_t id) {
    const TimelineSlice& from = timeline_.slices[timeline_.flows[id].from_slice];
    const TimelineSlice& to = timeline_.slices[timeline_.flows[id].to_slice];
    const std::string common = absl::StrCat(",\"name\":\"message\",\"cat\":\"flow\",\"id\":", id);
    Event(absl::StrCat("\"ph\":\"s\"", common, At(from, from.begin_s)));
    Event(absl::StrCat("\"ph\":\"f\",\"bp\":\"e\"", common, At(to, to.end_s)));
  }

  const Timeline& timeline_;
  double origin_s_ = 0;
  std::map<std::pair<int, std::string>, int> tids_;  // (row, stream)
  std::string events_;
};

}  // namespace

std::string JsonString(absl::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&json, "\\", absl::string_view(&c, 1));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<int>(c));
    } else {
      json += c;
    }
  }
  return json + "\"";
}

absl::StatusOr<std::string> TraceEventsJson(const Timeline& timeline) {
  if (absl::Status status = CheckTimeline(timeline); !status.ok()) return status;
  return TraceWriter(timeline).Write();
}

}  // namespace tessera::plan
