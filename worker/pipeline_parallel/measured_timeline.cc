#include "worker/pipeline_parallel/measured_timeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "plan/pipeline_timeline.h"

namespace tessera {

plan::Timeline MeasuredTimeline(const std::vector<std::vector<MeasuredAction>>& ranks,
                                std::vector<std::string> row_names, std::string title) {
  using Time = std::chrono::steady_clock::time_point;
  Time origin = Time::max();
  for (const std::vector<MeasuredAction>& actions : ranks) {
    if (!actions.empty()) origin = std::min(origin, actions.front().begin);
  }
  auto seconds = [&](Time time) { return std::chrono::duration<double>(time - origin).count(); };
  std::vector<std::vector<plan::TimedAction>> stages;
  for (const std::vector<MeasuredAction>& actions : ranks) {
    std::vector<plan::TimedAction>& stage = stages.emplace_back();
    for (const MeasuredAction& each : actions) {
      stage.push_back({each.action, seconds(each.begin), seconds(each.end)});
    }
  }
  return plan::TimelineOf(stages, std::move(row_names), std::move(title));
}

}  // namespace tessera
