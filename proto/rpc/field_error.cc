#include "proto/rpc/field_error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status FieldError(absl::StatusCode code, absl::string_view field, absl::string_view value,
                        absl::string_view rule) {
  std::string message = std::string(field);
  if (!value.empty()) absl::StrAppend(&message, ": ", value);
  absl::StrAppend(&message, ": ", rule);
  absl::Status status(code, message);
  status.SetPayload(kFieldPayload, absl::Cord(field));
  status.SetPayload(kValuePayload, absl::Cord(value));
  status.SetPayload(kRulePayload, absl::Cord(rule));
  return WithReason(std::move(status), code == absl::StatusCode::kUnimplemented
                                           ? "UNSUPPORTED_FIELD"
                                           : "INVALID_FIELD");
}

absl::Status InvalidField(absl::string_view field, absl::string_view value,
                          absl::string_view rule) {
  return FieldError(absl::StatusCode::kInvalidArgument, field, value, rule);
}

std::optional<std::string> FieldOf(const absl::Status& status) {
  absl::optional<absl::Cord> field = status.GetPayload(kFieldPayload);
  if (!field.has_value()) return std::nullopt;
  return std::string(*field);
}

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  if (!status.ok()) status.SetPayload(kReasonPayload, absl::Cord(reason));
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  absl::optional<absl::Cord> reason = status.GetPayload(kReasonPayload);
  return reason.has_value() ? std::string(*reason) : std::string();
}

}  // namespace tessera
