#include "storage/json.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

std::string Nested(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(Json, ReadsValuesOfEveryKind) {
  const auto json = ParseJsonValue(
      " {\"a\": [1, -2, -0, 2.5, 1e3, true, false, null], \"\\u00e9\": {\"b\": \"x\\ny\"},"
      " \"max\": 9223372036854775807, \"over\": 9223372036854775808} \n");
  ASSERT_TRUE(json.ok()) << json.status();
  const auto& list = *json->Find("a")->get<JsonValue::Array>();
  ASSERT_EQ(list.size(), 8u);
  EXPECT_EQ(*list[0].get<int64_t>(), 1);
  EXPECT_EQ(*list[1].get<int64_t>(), -2);
  EXPECT_EQ(*list[3].get<double>(), 2.5);
  EXPECT_EQ(*list[4].get<double>(), 1000);
  EXPECT_TRUE(*list[5].get<bool>());
  EXPECT_FALSE(*list[6].get<bool>());
  EXPECT_TRUE(list[7].is_null());
  EXPECT_EQ(*json->Find("é")->Find("b")->get<std::string>(), "x\ny");
  EXPECT_EQ(*json->Find("max")->get<int64_t>(), INT64_MAX);
  EXPECT_EQ(*json->Find("over")->get<double>(), 0x1p63);
  EXPECT_EQ(json->Find("none"), nullptr);
}

TEST(Json, RefusesWithTheReason) {
  const struct {
    const char* name;
    std::string text;
    const char* reason;
  } kCases[] = {
      {"empty", "", "syntax error"},
      {"open", "{\"a\":1", "syntax error"},
      {"two_values", "1 2", "JSON at byte 3"},
      {"trailing_comma", "[1,]", "syntax error"},
      {"comment", "/* */ 1", "syntax error"},
      {"single_quotes", "{'a':1}", "syntax error"},
      {"leading_zero", "[01]", "syntax error"},
      {"plus", "[+1]", "syntax error"},
      {"nan", "[NaN]", "syntax error"},
      {"control_character", "[\"a\nb\"]", "syntax error"},
      {"lone_surrogate", "[\"\\ud800\"]", "syntax error"},
      {"not_utf8", "[\"\xff\"]", "syntax error"},
      {"byte_order_mark", "\xEF\xBB\xBF{}", "byte order mark"},
      {"duplicate_key", "{\"a\":1,\"a\":1}", "duplicate key 'a'"},
      {"duplicate_escaped", "{\"a\":1,\"\\u0061\":1}", "duplicate key 'a'"},
      {"duplicate_nested", "[{\"x\":{\"a\":1,\"b\":{\"a\":2},\"a\":1}}]", "duplicate key 'a'"},
      {"too_large", "[1e999]", "out of range"},
      {"too_deep", Nested(33), "deeper than 32"},
      {"far_too_deep", std::string(1000000, '['), "deeper than 32"},
  };
  for (const auto& c : kCases) {
    const auto json = ParseJsonValue(c.text);
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_NE(json.status().message().find(c.reason), absl::string_view::npos)
        << c.name << ": " << json.status();
  }
  EXPECT_TRUE(ParseJsonValue(Nested(32)).ok());
  EXPECT_TRUE(ParseJsonValue("{\"a\":{\"a\":{}},\"b\":[{\"a\":1},{\"a\":1}]}").ok());
}

TEST(Json, KeepsToItsLimits) {
  EXPECT_TRUE(ParseJsonValue(Nested(3), {.max_depth = 3}).ok());
  EXPECT_EQ(ParseJsonValue(Nested(4), {.max_depth = 3}).status().message(),
            "JSON is nested deeper than 3 levels");
  // Of every kind one: with the array and the object, nine.
  const std::string nine = "[1,-1,0.5,\"\",true,null,{\"a\":2}]";
  EXPECT_TRUE(ParseJsonValue(nine, {.max_values = 9}).ok());
  for (int64_t most = 0; most < 9; ++most) {
    const absl::Status status = ParseJsonValue(nine, {.max_values = most}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), absl::StrCat("JSON has more than ", most, " values"));
  }
}

TEST(Json, WritesWhatItReads) {
  const std::string text =
      "{\"a\":[1,-2,2.5,1e-05,10000.0,true,null,[],{}],\"\\\"\\\\\\n\\u0001é\":\"\"}";
  EXPECT_EQ(*FormatJson(*ParseJsonValue(text)), text);
  EXPECT_EQ(*FormatJsonPretty(*ParseJsonValue("{\"a\":[1,{\"b\":null}],\"c\":{}}")),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": null\n    }\n  ],\n  \"c\": {}\n}\n");
  EXPECT_FALSE(FormatJson({std::string("\xff")}).ok());
  EXPECT_FALSE(FormatJson({JsonValue::Object{{"\xff", {}}}}).ok());
  EXPECT_FALSE(FormatJson({1.0 / 0.0}).ok());
}

TEST(Json, QuotesForMessages) {
  EXPECT_EQ(QuotedForMessage(absl::string_view("a\n\0", 3)), "'a\\n\\x00'");
  EXPECT_EQ(QuotedForMessage(std::string(101, 'x')), "'" + std::string(100, 'x') + "'...");
}

}  // namespace
}  // namespace tessera
