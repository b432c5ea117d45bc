// What a rule of a job's spec does when it is broken.
#ifndef TESSERA_COORDINATOR_SPEC_CHECK_H_
#define TESSERA_COORDINATOR_SPEC_CHECK_H_

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/rpc/field_error.h"

namespace tessera {

// Remembers the first violation; later checks are then skipped by the caller's order.
class SpecCheck {
 public:
  absl::Status status() const { return status_; }

  void Require(bool holds, absl::string_view field, const absl::AlphaNum& value,
               absl::string_view rule) {
    if (status_.ok() && !holds) status_ = InvalidField(field, value.Piece(), rule);
  }
  void Support(bool holds, absl::string_view field, const absl::AlphaNum& value,
               absl::string_view rule) {
    if (status_.ok() && !holds) {
      status_ = FieldError(absl::StatusCode::kUnimplemented, field, value.Piece(),
                           absl::StrCat("not supported by this version: ", rule));
    }
  }
  void Range(int64_t value, int64_t low, int64_t high, absl::string_view field) {
    Require(value >= low && value <= high, field, value,
            absl::StrCat("must be ", low, " .. ", high));
  }
  // low <= value < high, and a number.
  void HalfOpen(double value, double low, double high, absl::string_view field) {
    Require(value >= low && value < high, field, value,
            absl::StrCat("must be at least ", low, " and less than ", high));
  }
  void Positive(double value, absl::string_view field) {
    Require(value > 0 && std::isfinite(value), field, value, "must be a positive finite number");
  }
  template <typename Enum>
  void Enumerated(Enum value, bool is_valid, absl::string_view field) {
    Require(is_valid, field, static_cast<int>(value), "is not a value of this enum");
  }

 private:
  absl::Status status_;
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_SPEC_CHECK_H_
