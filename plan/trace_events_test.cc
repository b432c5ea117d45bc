#include "plan/trace_events.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/pipeline_timeline.h"

namespace tessera::plan {
namespace {

using Json = nlohmann::json;

Timeline Simulated(PipelineSchedule schedule, int p, int m, int v) {
  auto lists = MakeSchedule({.schedule = schedule, .stages = p, .micro_batches = m, .chunks = v});
  auto simulation = SimulatePipeline(*lists, {});
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return TimelineOf(*simulation, "a title");
}

TEST(TraceEvents, SlicesThreadsAndJoinedFlows) {
  const Timeline timeline = Simulated(PipelineSchedule::kInterleaved1f1b, 4, 8, 2);
  // 2 directions * (p v - 1) hops * m micro-batches
  EXPECT_EQ(timeline.flows.size(), 2U * 7 * 8);
  auto text = TraceEventsJson(timeline);
  ASSERT_TRUE(text.ok()) << text.status();
  const Json trace = Json::parse(*text);
  EXPECT_EQ(trace["otherData"]["title"], "a title");

  std::map<std::string, int> phases;
  std::map<int, std::pair<Json, Json>> flows;  // by id: start, finish
  std::vector<Json> slices;
  std::map<std::string, int> names;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    ++phases[phase];
    if (phase == "X") slices.push_back(event);
    if (phase == "s") flows[event["id"]].first = event;
    if (phase == "f") flows[event["id"]].second = event;
    if (phase == "M" && event["args"].contains("name")) ++names[event["args"]["name"]];
  }
  EXPECT_EQ(phases["X"], static_cast<int>(timeline.slices.size()));
  EXPECT_EQ(phases["s"], static_cast<int>(timeline.flows.size()));
  EXPECT_EQ(phases["f"], static_cast<int>(timeline.flows.size()));
  EXPECT_EQ(names, (std::map<std::string, int>{{"pp_rank 0", 1},
                                               {"pp_rank 1", 1},
                                               {"pp_rank 2", 1},
                                               {"pp_rank 3", 1},
                                               {"compute", 4},
                                               {"send", 4},
                                               {"receive", 4}}));
  auto enclosed = [&](const Json& end, const char* category) {
    const double ts = end["ts"];
    for (const Json& slice : slices) {
      if (slice["cat"] == category && slice["pid"] == end["pid"] && slice["tid"] == end["tid"] &&
          slice["ts"].get<double>() <= ts &&
          ts < slice["ts"].get<double>() + slice["dur"].get<double>()) {
        return true;
      }
    }
    return false;
  };
  for (const auto& [id, flow] : flows) {
    EXPECT_LE(flow.first["ts"].get<double>(), flow.second["ts"].get<double>());
    EXPECT_TRUE(enclosed(flow.first, "send")) << flow.first;
    EXPECT_TRUE(enclosed(flow.second, "receive")) << flow.second;
    EXPECT_NE(flow.first["pid"], flow.second["pid"]);
  }
}

TEST(TraceEvents, MicrosecondsFromTheFirstSliceAndEscapedNames) {
  Timeline timeline;
  timeline.title = "\"quoted\" \\ and\nlines";
  timeline.row_names = {"host \"a\"\t1", "b"};
  timeline.slices = {{.row = 1, .name = "später", .begin_s = 100.5, .end_s = 100.75},
                     {.row = 0,
                      .name = "x\x01",
                      .stream = "copy",
                      .category = SliceCategory::kCollective,
                      .begin_s = 100,
                      .end_s = 100.0000015,
                      .micro_batch = 3}};
  auto text = TraceEventsJson(timeline);
  ASSERT_TRUE(text.ok()) << text.status();
  const Json trace = Json::parse(*text);
  EXPECT_EQ(trace["otherData"]["title"], timeline.title);
  std::vector<Json> slices;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") slices.push_back(event);
    if (event["ph"] == "M" && event["name"] == "process_name") {
      EXPECT_EQ(event["args"]["name"], timeline.row_names[event["pid"].get<int>()]);
    }
  }
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0]["ts"], 500000.0);
  EXPECT_EQ(slices[0]["dur"], 250000.0);
  EXPECT_EQ(slices[0]["name"], "später");
  EXPECT_EQ(slices[0]["args"], Json::object());
  EXPECT_EQ(slices[1]["dur"], 1.5);
  EXPECT_EQ(slices[1]["cat"], "collective");
  EXPECT_EQ(slices[1]["args"], (Json{{"micro_batch", 3}}));
  EXPECT_NE(slices[1]["tid"], slices[0]["tid"]);
}

TEST(TraceEvents, EmptyIsValidAndFaultsAreNamed) {
  EXPECT_TRUE(Json::parse(*TraceEventsJson({}))["traceEvents"].empty());

  const double nan = std::numeric_limits<double>::quiet_NaN();
  Timeline timeline{.row_names = {"a"}, .slices = {{.row = 1}}};
  EXPECT_EQ(TraceEventsJson(timeline).status().message(), "slices[0].row: 1: there are 1 rows");
  timeline.slices = {{.begin_s = 2, .end_s = 1}};
  EXPECT_EQ(TraceEventsJson(timeline).status().message(),
            "slices[0]: from 2 s to 1 s: must be finite and not end earlier");
  timeline.slices = {{.begin_s = nan, .end_s = 1}};
  EXPECT_FALSE(TraceEventsJson(timeline).ok());
  timeline.slices = {{.begin_s = 0, .end_s = 1}};
  timeline.flows = {{0, 1}};
  EXPECT_EQ(TraceEventsJson(timeline).status().message(), "flows[0]: slice 1: there are 1 slices");
}

}  // namespace
}  // namespace tessera::plan
