// Reads a job file: YAML (or JSON, which is YAML) to a TrainingJobSpec, strictly.
#ifndef TESSERA_CLI_JOB_FILE_H_
#define TESSERA_CLI_JOB_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/tessera/v1/spec.pb.h"

namespace tessera {

// text is the file's content, path is for messages. INVALID_ARGUMENT names file, line, field, value
// and rule: unknown and repeated fields, nulls and wrong types are refused. Enum values are written
// without their prefix, in lower case. Ranges are the coordinator's business.
absl::StatusOr<v1::TrainingJobSpec> ParseJobFile(const std::string& text, const std::string& path);

// Reads and parses. NOT_FOUND, INVALID_ARGUMENT (a folder, more than 1 MiB). "-" is standard input.
absl::StatusOr<v1::TrainingJobSpec> ReadJobFile(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_CLI_JOB_FILE_H_
