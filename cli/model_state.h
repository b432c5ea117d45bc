// Model state by zero_stage for a model of which only the size is known: pure functions.
#ifndef TESSERA_CLI_MODEL_STATE_H_
#define TESSERA_CLI_MODEL_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/tessera/v1/memory.pb.h"

namespace tessera {

// As given on the command line.
struct ModelStateOptions {
  std::string parameters;     // "7.5B"
  int64_t dp = 1;             // devices that share the state
  std::string device_memory;  // "32GB"; empty: not asked
  std::string precision = "bf16";
};

// "7.5B": a positive number with K, M, B or T (1e3, 1e6, 1e9, 1e12) or none, at most 1e17, rounded
// to a whole one. INVALID_ARGUMENT names the flag.
absl::StatusOr<int64_t> ParseCount(absl::string_view text, absl::string_view flag);

// INVALID_ARGUMENT names flag, value and rule.
absl::StatusOr<v1::ModelStatePlan> PlanModelState(const ModelStateOptions& options);

// As people read it: one line a zero_stage.
std::string ModelStateTable(const v1::ModelStatePlan& plan);

}  // namespace tessera

#endif  // TESSERA_CLI_MODEL_STATE_H_
