// Errors that name the field, its value and the rule it breaks, and errors with a machine-readable
// reason. Both travel as absl::Status payloads and become google.rpc details on the wire
// (status.h).
#ifndef TESSERA_PROTO_RPC_FIELD_ERROR_H_
#define TESSERA_PROTO_RPC_FIELD_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Message "field: value: rule" (without value: "field: rule"); reason INVALID_FIELD, or
// UNSUPPORTED_FIELD for kUnimplemented.
absl::Status FieldError(absl::StatusCode code, absl::string_view field, absl::string_view value,
                        absl::string_view rule);
// kInvalidArgument.
absl::Status InvalidField(absl::string_view field, absl::string_view value, absl::string_view rule);

// The field of an error made by FieldError.
std::optional<std::string> FieldOf(const absl::Status& status);

// Adds an UPPER_SNAKE_CASE reason, replacing an earlier one. OK stays OK.
absl::Status WithReason(absl::Status status, absl::string_view reason);
// The reason; empty if there is none.
std::string ReasonOf(const absl::Status& status);

// Payload type URLs.
inline constexpr char kReasonPayload[] = "tessera/reason";
inline constexpr char kFieldPayload[] = "tessera/field";
inline constexpr char kValuePayload[] = "tessera/value";
inline constexpr char kRulePayload[] = "tessera/rule";

}  // namespace tessera

#endif  // TESSERA_PROTO_RPC_FIELD_ERROR_H_
