#include "plan/timeline_svg.h"

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/pipeline_timeline.h"

namespace tessera::plan {
namespace {

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Tags nest and close, attributes are quoted and no name repeats, text has no bare '<' or '&'.
// Returns what is wrong, empty if nothing is.
std::string XmlFault(const std::string& xml) {
  std::vector<std::string> open;
  bool had_root = false;
  size_t at = 0;
  if (absl::StartsWith(xml, "<?xml ")) at = xml.find("?>") + 2;
  auto check_text = [](const std::string& text) -> std::string {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '<') return "bare <";
      if (text[i] != '&') continue;
      const std::string rest = text.substr(i, 6);
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
        known |= absl::StartsWith(rest, entity);
      }
      if (!known) return absl::StrCat("entity ", rest);
    }
    return "";
  };
  while (at < xml.size()) {
    const size_t tag = xml.find('<', at);
    const std::string between = xml.substr(at, tag == std::string::npos ? tag : tag - at);
    if (std::string fault = check_text(between); !fault.empty()) return fault;
    if (open.empty() && between.find_first_not_of(" \n") != std::string::npos)
      return "text outside";
    if (tag == std::string::npos) break;
    size_t i = tag + 1;
    const bool closing = xml[i] == '/';
    if (closing) ++i;
    std::string name;
    while (i < xml.size() && std::isalnum(static_cast<unsigned char>(xml[i]))) name += xml[i++];
    if (name.empty()) return absl::StrCat("no name at ", tag);
    std::vector<std::string> attributes;
    while (i < xml.size() && xml[i] == ' ') {
      while (xml[i] == ' ') ++i;
      if (xml[i] == '/' || xml[i] == '>') break;
      const size_t equals = xml.find("=\"", i);
      if (equals == std::string::npos) return "attribute without value";
      const std::string attribute = xml.substr(i, equals - i);
      for (const std::string& other : attributes) {
        if (other == attribute) return absl::StrCat("twice ", attribute);
      }
      for (char c : attribute) {
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') return "attribute name";
      }
      attributes.push_back(attribute);
      const size_t quote = xml.find('"', equals + 2);
      if (quote == std::string::npos) return "open quote";
      if (std::string fault = check_text(xml.substr(equals + 2, quote - equals - 2));
          !fault.empty()) {
        return fault;
      }
      i = quote + 1;
    }
    const bool empty = xml[i] == '/';
    if (empty) ++i;
    if (xml[i] != '>') return absl::StrCat("tag ", name, " does not end");
    if (closing) {
      if (open.empty() || open.back() != name) return absl::StrCat("closes ", name);
      open.pop_back();
    } else if (!empty) {
      if (open.empty() && had_root) return "two roots";
      had_root = true;
      open.push_back(name);
    }
    at = i + 1;
  }
  return open.empty() && had_root ? "" : "not closed";
}

std::string Drawn(PipelineSchedule schedule, int p, int m, int v, const SvgOptions& options = {}) {
  auto lists = MakeSchedule({.schedule = schedule, .stages = p, .micro_batches = m, .chunks = v});
  auto simulation = SimulatePipeline(*lists, {});
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  auto svg = TimelineSvg(TimelineOf(*simulation, PipelineScheduleName(schedule)), options);
  EXPECT_TRUE(svg.ok()) << svg.status();
  return *std::move(svg);
}

TEST(TimelineSvg, TheCheckerFindsFaults) {
  EXPECT_EQ(XmlFault("<a><b c=\"1\"/>x &amp; y</a>\n"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a b=1/>", "<a>&</a>", "<a b=\"<\"/>", "<a/><", "",
                          "<a b=\"1\" b=\"2\"></a>", "<a></a><b></b>", "<a></a>x"}) {
    EXPECT_NE(XmlFault(bad), "") << bad;
  }
}

TEST(TimelineSvg, EveryScheduleIsWellFormedWithABoxForEachComputation) {
  for (PipelineSchedule schedule : kPipelineSchedules) {
    const int v = schedule == PipelineSchedule::kInterleaved1f1b ? 2 : 1;
    const std::string svg = Drawn(schedule, 4, 8, v);
    EXPECT_EQ(XmlFault(svg), "") << PipelineScheduleName(schedule);
    const bool apart = schedule == PipelineSchedule::kZeroBubbleH1;
    EXPECT_EQ(CountOf(svg, "class=\"forward\""), 4 * 8 * v);
    EXPECT_EQ(CountOf(svg, "class=\"backward\""), apart ? 0 : 4 * 8 * v);
    EXPECT_EQ(CountOf(svg, "class=\"backward_input\""), apart ? 4 * 8 : 0);
    EXPECT_EQ(CountOf(svg, "class=\"backward_weight\""), apart ? 4 * 8 : 0);
    EXPECT_EQ(CountOf(svg, "class=\"row\""), 4);
    EXPECT_EQ(CountOf(svg, ">pp_rank "), 4);
    EXPECT_GE(CountOf(svg, "class=\"tick\""), 4);
    EXPECT_EQ(CountOf(svg, ">7</text>"), 4 * v * (apart ? 3 : 2));  // the last micro-batch
    EXPECT_EQ(CountOf(svg, ">chunk 1</text>"), v - 1);
    EXPECT_EQ(CountOf(svg, "<script"), 0);
    EXPECT_EQ(CountOf(svg, "class=\"flow\""), 0);
  }
}

TEST(TimelineSvg, FlowsOnRequest) {
  const std::string svg = Drawn(PipelineSchedule::k1f1b, 4, 8, 1, {.draw_flows = true});
  EXPECT_EQ(XmlFault(svg), "");
  EXPECT_EQ(CountOf(svg, "class=\"flow\""), 2 * 3 * 8);
}

TEST(TimelineSvg, EscapesNamesAndChoosesTheUnit) {
  Timeline timeline{.title = "a < b & \"c\"\x01",
                    .row_names = {"<row>"},
                    .slices = {{.name = "it's & more", .begin_s = 5, .end_s = 5.004}}};
  auto svg = TimelineSvg(timeline);
  ASSERT_TRUE(svg.ok());
  EXPECT_EQ(XmlFault(*svg), "");
  EXPECT_EQ(CountOf(*svg, "time (ms)"), 1);
  EXPECT_EQ(CountOf(*svg, "it&#39;s &amp; more: 0 to 4 ms"), 1);
  EXPECT_EQ(CountOf(*svg, "&lt;row&gt;"), 1);
}

TEST(TimelineSvg, EmptyAndInstantaneousAreDrawnAndFaultsRefused) {
  for (const Timeline& timeline :
       {Timeline{}, Timeline{.row_names = {"a"}, .slices = {{.begin_s = 1, .end_s = 1}}}}) {
    auto svg = TimelineSvg(timeline);
    ASSERT_TRUE(svg.ok());
    EXPECT_EQ(XmlFault(*svg), "");
  }
  EXPECT_EQ(TimelineSvg({}, {.width_px = 100}).status().message(),
            "width_px: 100: must be at least 400");
  EXPECT_FALSE(TimelineSvg({.slices = {{.row = 0}}}).ok());
}

}  // namespace
}  // namespace tessera::plan
