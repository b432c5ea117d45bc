#include "cli/job_file.h"

#include <yaml-cpp/yaml.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "cli/yaml_decoder.h"

namespace tessera {
namespace {
constexpr size_t kMaxFileBytes = 1 << 20;
}  // namespace

absl::StatusOr<v1::TrainingJobSpec> ParseJobFile(const std::string& text, const std::string& path) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a job file has at most ", kMaxFileBytes,
                                                   " bytes, this one has ", text.size()));
  }
  std::vector<YAML::Node> documents;
  try {  // yaml-cpp reports by exceptions
    documents = YAML::LoadAll(text);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", error.mark.line + 1, ":",
                                                   error.mark.column + 1,
                                                   ": not valid YAML or JSON: ", error.msg));
  }
  if (documents.size() != 1 || documents[0].IsNull()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must hold exactly one job, not ", documents.size()));
  }
  v1::TrainingJobSpec spec;
  absl::Status status;
  try {
    status = DecodeYaml(documents[0], path, "spec", spec);
  } catch (const YAML::Exception& error) {
    status = absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
  if (!status.ok()) return status;
  return spec;
}

absl::StatusOr<v1::TrainingJobSpec> ReadJobFile(const std::string& path) {
  std::stringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return ParseJobFile(text.str(), "standard input");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  text << file.rdbuf();
  if (!file && !file.eof()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  }
  return ParseJobFile(text.str(), path);
}

}  // namespace tessera
