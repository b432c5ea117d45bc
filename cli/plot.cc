#include "cli/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera {

std::string DrawPlot(const std::vector<PlotSeries>& series, int width, int height) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double x_low = kInfinity, x_high = -kInfinity, y_low = kInfinity, y_high = -kInfinity;
  for (const PlotSeries& one : series) {
    for (const auto& [x, y] : one.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      x_low = std::min(x_low, x);
      x_high = std::max(x_high, x);
      y_low = std::min(y_low, y);
      y_high = std::max(y_high, y);
    }
  }
  if (x_low > x_high) return "";
  const double x_span = x_high > x_low ? x_high - x_low : 1;
  const double y_span = y_high > y_low ? y_high - y_low : 1;

  std::vector<std::string> rows(height, std::string(width, ' '));
  for (const PlotSeries& one : series) {
    for (const auto& [x, y] : one.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      const int column = static_cast<int>(std::lround((x - x_low) / x_span * (width - 1)));
      const int row = static_cast<int>(std::lround((y_high - y) / y_span * (height - 1)));
      rows[row][column] = one.mark;
    }
  }
  std::string text;
  for (int row = 0; row < height; ++row) {
    const double y = y_high - y_span * row / std::max(1, height - 1);
    absl::StrAppendFormat(&text, "%8.3f |%s\n", y, rows[row]);
  }
  absl::StrAppend(&text, std::string(9, ' '), "+", std::string(width, '-'), "\n");
  const std::string left = absl::StrFormat("%.0f", x_low);
  const std::string right = absl::StrFormat("step %.0f", x_high);
  const int gap = std::max(1, width - static_cast<int>(left.size() + right.size()));
  absl::StrAppend(&text, std::string(10, ' '), left, std::string(gap, ' '), right, "\n");
  for (const PlotSeries& one : series) {
    if (!one.points.empty()) {
      absl::StrAppend(&text, std::string(10, ' '), std::string(1, one.mark), " ", one.label, "\n");
    }
  }
  return text;
}

}  // namespace tessera
