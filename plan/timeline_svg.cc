#include "plan/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::plan {
namespace {

constexpr int kMarginPx = 16;
constexpr int kTitlePx = 30;
constexpr int kLegendPx = 26;
constexpr int kRowPx = 34;   // from one row to the next
constexpr int kBoxPx = 22;   // height of a box
constexpr int kStripPx = 4;  // height of a send or receive, below the boxes
constexpr int kAxisPx = 40;
constexpr double kDigitPx = 6.4;  // width of a digit in a box, generous

struct Colour {
  int red, green, blue;
};

// Pale enough for dark text on all of them; forward, backward and weights differ in hue and in
// lightness, so that they differ in grey as well.
Colour ColourOf(SliceCategory category) {
  switch (category) {
    case SliceCategory::kForward:
      return {108, 166, 224};
    case SliceCategory::kBackward:
      return {247, 178, 103};
    case SliceCategory::kBackwardInput:
      return {247, 178, 103};
    case SliceCategory::kBackwardWeight:
      return {158, 214, 158};
    case SliceCategory::kSend:
      return {84, 96, 112};
    case SliceCategory::kReceive:
      return {205, 120, 140};
    case SliceCategory::kCollective:
      return {190, 160, 220};
    case SliceCategory::kOptimizer:
      return {150, 205, 205};
    case SliceCategory::kIdle:
      return {226, 230, 234};
    case SliceCategory::kOther:
      return {200, 200, 190};
  }
  return {200, 200, 190};
}

// share: 0 as it is, 1 white.
std::string Hex(const Colour& colour, double share) {
  auto mix = [share](int value) {
    return static_cast<int>(std::lround(value + (255 - value) * share));
  };
  return absl::StrFormat("#%02x%02x%02x", mix(colour.red), mix(colour.green), mix(colour.blue));
}

struct Unit {
  const char* name;
  double seconds;
};

Unit UnitFor(double span_s) {
  if (span_s >= 1) return {"s", 1};
  if (span_s >= 1e-3) return {"ms", 1e-3};
  return {"µs", 1e-6};
}

// 1, 2 or 5 times a power of ten, for about `ticks` ticks.
double TickStep(double span, int ticks) {
  const double least = span / ticks;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * 0.999) return factor * power;
  }
  return 10 * power;
}

bool IsStrip(SliceCategory category) {
  return category == SliceCategory::kSend || category == SliceCategory::kReceive;
}

class Drawing {
 public:
  Drawing(const Timeline& timeline, const SvgOptions& options)
      : timeline_(timeline), options_(options) {
    size_t name_length = 0;
    for (const std::string& name : timeline.row_names) {
      name_length = std::max(name_length, name.size());
    }
    left_ = kMarginPx + std::min(160.0, 7.0 * static_cast<double>(name_length)) + 8;
    top_ = kMarginPx + kTitlePx + kLegendPx;
    bottom_ = top_ + kRowPx * static_cast<double>(timeline.row_names.size());
    if (timeline.slices.empty()) return;
    begin_s_ = timeline.slices[0].begin_s;
    double end_s = timeline.slices[0].end_s;
    for (const TimelineSlice& slice : timeline.slices) {
      begin_s_ = std::min(begin_s_, slice.begin_s);
      end_s = std::max(end_s, slice.end_s);
      max_chunk_ = std::max(max_chunk_, slice.chunk);
    }
    if (end_s > begin_s_) span_s_ = end_s - begin_s_;
    unit_ = UnitFor(span_s_);
  }

  std::string Draw() {
    const double height = bottom_ + kAxisPx + kMarginPx;
    absl::StrAppendFormat(
        &svg_,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
        "viewBox=\"0 0 %d %.0f\" role=\"img\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" "
        "font-size=\"12\" fill=\"#1f2933\">\n<title>%s</title>\n"
        "<rect class=\"paper\" width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        options_.width_px, height, options_.width_px, height, XmlText(timeline_.title));
    Text(kMarginPx, kMarginPx + 15, timeline_.title, "font-size=\"16\" font-weight=\"600\"");
    Legend();
    Rows();
    Axis();
    for (const TimelineSlice& slice : timeline_.slices) Slice(slice);
    if (options_.draw_flows) Flows();
    return svg_ + "</svg>\n";
  }

 private:
  double X(double time_s) const {
    const double width = options_.width_px - left_ - kMarginPx - 8;
    return left_ + width * ((time_s - begin_s_) / span_s_);
  }
  double RowTop(int row) const { return top_ + kRowPx * static_cast<double>(row); }

  void Text(double x, double y, absl::string_view text, absl::string_view attributes) {
    absl::StrAppendFormat(&svg_, "<text x=\"%.2f\" y=\"%.2f\" %s>%s</text>\n", x, y, attributes,
                          XmlText(text));
  }

  // One entry for each category that occurs; chunks are explained where there are some.
  void Legend() {
    double x = kMarginPx;
    const double y = kMarginPx + kTitlePx;
    auto entry = [&](const std::string& fill, const std::string& label) {
      absl::StrAppendFormat(&svg_,
                            "<rect class=\"legend\" x=\"%.2f\" y=\"%.2f\" width=\"14\" "
                            "height=\"12\" rx=\"2\" fill=\"%s\"/>\n",
                            x, y - 10, fill);
      Text(x + 19, y, label, "font-size=\"11\"");
      x += 19 + 6.6 * static_cast<double>(label.size()) + 16;
    };
    for (SliceCategory category : kSliceCategories) {
      const auto drawn = [category](const TimelineSlice& slice) {
        return slice.category == category && slice.end_s > slice.begin_s;
      };
      if (std::none_of(timeline_.slices.begin(), timeline_.slices.end(), drawn)) continue;
      entry(Hex(ColourOf(category), 0), SliceCategoryName(category));
    }
    for (int chunk = 0; max_chunk_ > 0 && chunk <= std::min(max_chunk_, 7); ++chunk) {
      entry(Hex(ColourOf(SliceCategory::kForward), Paleness(chunk)), absl::StrCat("chunk ", chunk));
    }
  }

  void Rows() {
    for (size_t i = 0; i < timeline_.row_names.size(); ++i) {
      const double y = RowTop(static_cast<int>(i));
      absl::StrAppendFormat(&svg_,
                            "<rect class=\"row\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                            "height=\"%d\" fill=\"#f1f3f5\"/>\n",
                            left_, y, X(begin_s_ + span_s_) - left_, kBoxPx + kStripPx);
      Text(left_ - 8, y + kBoxPx / 2.0 + 4, timeline_.row_names[i], "text-anchor=\"end\"");
    }
  }

  void Axis() {
    const double y = bottom_ + 4;
    const double span = span_s_ / unit_.seconds;
    const double step = TickStep(span, std::max(4, options_.width_px / 120));
    for (int i = 0; i * step <= span * 1.0001; ++i) {
      const double x = X(begin_s_ + i * step * unit_.seconds);
      absl::StrAppendFormat(&svg_,
                            "<line class=\"tick\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" "
                            "stroke=\"#c5ccd3\" stroke-width=\"0.6\"/>\n",
                            x, top_ - 3, x, y + 4);
      Text(x, y + 17, absl::StrFormat("%g", i * step), "font-size=\"11\" text-anchor=\"middle\"");
    }
    Text((left_ + X(begin_s_ + span_s_)) / 2, y + 34, absl::StrCat("time (", unit_.name, ")"),
         "font-size=\"11\" text-anchor=\"middle\"");
  }

  double Paleness(int chunk) const {
    return max_chunk_ > 0 && chunk > 0 ? 0.6 * chunk / max_chunk_ : 0;
  }

  void Slice(const TimelineSlice& slice) {
    if (slice.end_s <= slice.begin_s) return;
    const bool strip = IsStrip(slice.category);
    const double x = X(slice.begin_s);
    const double width = X(slice.end_s) - x;
    const double y = RowTop(slice.row) + (strip ? kBoxPx : 0);
    const std::string fill = Hex(ColourOf(slice.category), strip ? 0 : Paleness(slice.chunk));
    absl::StrAppendFormat(
        &svg_,
        "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\" rx=\"%s\" "
        "fill=\"%s\"%s><title>%s</title></rect>\n",
        SliceCategoryName(slice.category), x, y, width, strip ? kStripPx : kBoxPx,
        strip ? "0" : "2", fill, strip ? "" : " stroke=\"#ffffff\" stroke-width=\"0.8\"",
        XmlText(Tooltip(slice)));
    if (strip || slice.micro_batch < 0) return;
    const std::string number = absl::StrCat(slice.micro_batch);
    if (width < kDigitPx * static_cast<double>(number.size()) + 2) return;
    Text(x + width / 2, y + kBoxPx / 2.0 + 4, number,
         "font-size=\"11\" text-anchor=\"middle\" pointer-events=\"none\"");
  }

  std::string Tooltip(const TimelineSlice& slice) const {
    std::string text = slice.name;
    if (slice.micro_batch >= 0) absl::StrAppend(&text, ", micro_batch ", slice.micro_batch);
    if (slice.chunk >= 0) absl::StrAppend(&text, ", chunk ", slice.chunk);
    absl::StrAppendFormat(&text, ": %.6g to %.6g %s", (slice.begin_s - begin_s_) / unit_.seconds,
                          (slice.end_s - begin_s_) / unit_.seconds, unit_.name);
    return text;
  }

  void Flows() {
    for (const TimelineFlow& flow : timeline_.flows) {
      const TimelineSlice& from = timeline_.slices[flow.from_slice];
      const TimelineSlice& to = timeline_.slices[flow.to_slice];
      const double middle = kBoxPx / 2.0;
      absl::StrAppendFormat(&svg_,
                            "<line class=\"flow\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" "
                            "stroke=\"#364152\" stroke-width=\"0.8\" stroke-opacity=\"0.5\"/>\n",
                            X(from.begin_s), RowTop(from.row) + middle, X(to.end_s),
                            RowTop(to.row) + middle);
    }
  }

  const Timeline& timeline_;
  const SvgOptions options_;
  double left_ = 0;  // of the time axis
  double top_ = 0;   // of the rows
  double bottom_ = 0;
  double begin_s_ = 0;
  double span_s_ = 1;
  int max_chunk_ = 0;
  Unit unit_{"s", 1};
  std::string svg_;
};

}  // namespace

std::string XmlText(absl::string_view text) {
  std::string xml;
  for (const char c : text) {
    switch (c) {
      case '&':
        xml += "&amp;";
        break;
      case '<':
        xml += "&lt;";
        break;
      case '>':
        xml += "&gt;";
        break;
      case '"':
        xml += "&quot;";
        break;
      case '\'':
        xml += "&#39;";
        break;
      default:
        xml += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return xml;
}

absl::StatusOr<std::string> TimelineSvg(const Timeline& timeline, const SvgOptions& options) {
  if (absl::Status status = CheckTimeline(timeline); !status.ok()) return status;
  if (options.width_px < 400) {
    return absl::InvalidArgumentError(
        absl::StrCat("width_px: ", options.width_px, ": must be at least 400"));
  }
  return Drawing(timeline, options).Draw();
}

}  // namespace tessera::plan
