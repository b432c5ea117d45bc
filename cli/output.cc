#include "cli/output.h"

#include <google/protobuf/util/json_util.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// JSON is YAML, but in flow style; people want blocks.
void SetBlockStyle(YAML::Node node) {
  if (node.IsMap()) {
    node.SetStyle(YAML::EmitterStyle::Block);
    for (auto entry : node) SetBlockStyle(entry.second);
  } else if (node.IsSequence()) {
    node.SetStyle(YAML::EmitterStyle::Block);
    for (auto entry : node) SetBlockStyle(entry);
  }
}

std::string Json(const google::protobuf::Message& message, bool indented) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = indented;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : absl::StrCat("{\"error\": \"", status.ToString(), "\"}\n");
}

}  // namespace

absl::StatusOr<OutputFormat> ParseOutputFormat(const std::string& text) {
  if (text == "table") return OutputFormat::kTable;
  if (text == "wide") return OutputFormat::kWide;
  if (text == "json") return OutputFormat::kJson;
  if (text == "yaml") return OutputFormat::kYaml;
  if (text == "name") return OutputFormat::kName;
  return absl::InvalidArgumentError(
      absl::StrCat("--output: \"", text, "\": must be table, wide, json, yaml or name"));
}

std::string ToJson(const google::protobuf::Message& message) { return Json(message, true); }

std::string ToJsonLine(const google::protobuf::Message& message) {
  return absl::StrCat(Json(message, false), "\n");
}

std::string ToYaml(const google::protobuf::Message& message) {
  YAML::Node node = YAML::Load(ToJson(message));
  SetBlockStyle(node);
  YAML::Emitter emitter;
  emitter << node;
  return absl::StrCat(emitter.c_str(), "\n");
}

}  // namespace tessera
