// Messages as JSON, YAML or names.
#ifndef TESSERA_CLI_OUTPUT_H_
#define TESSERA_CLI_OUTPUT_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"

namespace tessera {

// "table", "wide", "json", "yaml", "name". INVALID_ARGUMENT for anything else.
absl::StatusOr<OutputFormat> ParseOutputFormat(const std::string& text);

// protojson, indented, with a newline.
std::string ToJson(const google::protobuf::Message& message);
// protojson, on one line, with a newline.
std::string ToJsonLine(const google::protobuf::Message& message);
// The same as YAML.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace tessera

#endif  // TESSERA_CLI_OUTPUT_H_
