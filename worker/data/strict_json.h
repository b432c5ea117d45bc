// JSON from files that may be damaged or hostile.
#ifndef TESSERA_WORKER_DATA_STRICT_JSON_H_
#define TESSERA_WORKER_DATA_STRICT_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Bounds of what a text may make the reader build, whatever its size.
struct JsonLimits {
  int64_t max_values = int64_t{1} << 22;  // objects, arrays and scalars together
  int max_depth = 64;
};

// INVALID_ARGUMENT says where the text is not JSON (RFC 8259, UTF-8), which key an object has twice
// or which limit it passes.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text,
                                               const JsonLimits& limits = {});

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_STRICT_JSON_H_
