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

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : absl::StrCat("{\"error\": \"", status.ToString(), "\"}\n");
}

std::string ToYaml(const google::protobuf::Message& message) {
  YAML::Node node = YAML::Load(ToJson(message));
  SetBlockStyle(node);
  YAML::Emitter emitter;
  emitter << node;
  return absl::StrCat(emitter.c_str(), "\n");
}

}  // namespace tessera
