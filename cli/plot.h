// A small plot of loss curves for a terminal.
#ifndef TESSERA_CLI_PLOT_H_
#define TESSERA_CLI_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct PlotSeries {
  char mark = '*';
  std::string label;
  std::vector<std::pair<double, double>> points;  // x, y
};

// width x height characters of plot area, axes and a legend besides; later series are drawn over
// earlier ones. Points that are not finite are left out; empty if nothing is left.
std::string DrawPlot(const std::vector<PlotSeries>& series, int width, int height);

}  // namespace tessera

#endif  // TESSERA_CLI_PLOT_H_
