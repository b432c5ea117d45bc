// Fills a protobuf message from a YAML node by the message's descriptor.
#ifndef TESSERA_CLI_YAML_DECODER_H_
#define TESSERA_CLI_YAML_DECODER_H_

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/status/status.h"

namespace tessera {

// Sets the fields that node names. `file` and `field` ("spec") prefix the errors, which are all
// INVALID_ARGUMENT with the field's path. message is undefined on failure.
absl::Status DecodeYaml(const YAML::Node& node, const std::string& file, const std::string& field,
                        google::protobuf::Message& message);

// How a value of this enum is written: "PRECISION_FP32" -> "fp32".
std::string ShortEnumName(const google::protobuf::EnumValueDescriptor& value);

}  // namespace tessera

#endif  // TESSERA_CLI_YAML_DECODER_H_
