#include "worker/data/json_reader.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"
#include "storage/utf8.h"

namespace tessera {
namespace {

bool IsObject(const JsonValue& value) { return value.get<JsonValue::Object>() != nullptr; }

// 1 and 1.0 are the same number.
bool SameScalar(const JsonValue& a, const JsonValue& b) {
  const auto number = [](const JsonValue& value) -> std::optional<double> {
    if (const auto* integer = value.get<int64_t>()) return static_cast<double>(*integer);
    if (const auto* real = value.get<double>()) return *real;
    return std::nullopt;
  };
  if (const auto* text = a.get<std::string>()) {
    const auto* other = b.get<std::string>();
    return other != nullptr && *other == *text;
  }
  if (const auto* boolean = a.get<bool>()) {
    const auto* other = b.get<bool>();
    return other != nullptr && *other == *boolean;
  }
  return number(a).has_value() && number(a) == number(b);
}

}  // namespace

std::string ShowJson(const JsonValue& value) {
  constexpr size_t kShownBytes = 80;
  if (IsObject(value)) return "an object";
  if (value.get<JsonValue::Array>() != nullptr) return "an array";
  std::string text = *FormatJson(value);
  if (text.size() <= kShownBytes) return text;
  // Not within a character.
  text.resize(ValidUtf8Prefix(absl::string_view(text).substr(0, kShownBytes)));
  return text + "...";
}

int32_t IdOrNegative(const JsonValue& value) {
  const auto* id = value.get<int64_t>();
  if (id == nullptr || *id < 0 || *id > std::numeric_limits<int32_t>::max()) return -1;
  return static_cast<int32_t>(*id);
}

JsonObjectReader::JsonObjectReader(const JsonValue& value, std::string path, absl::Status* status)
    : value_(value), path_(std::move(path)), status_(status) {
  if (!IsObject(value_) && status_->ok()) {
    *status_ =
        InvalidField(path_.empty() ? "(root)" : path_, ShowJson(value_), "must be an object");
  }
}

std::string JsonObjectReader::PathOf(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

void JsonObjectReader::Fail(absl::StatusCode code, absl::string_view key, absl::string_view rule) {
  if (!status_->ok()) return;
  const JsonValue* found = value_.Find(key);
  *status_ = FieldError(code, PathOf(key), found == nullptr ? "" : ShowJson(*found), rule);
}

void JsonObjectReader::Invalid(absl::string_view key, absl::string_view rule) {
  Fail(absl::StatusCode::kInvalidArgument, key, rule);
}

void JsonObjectReader::Unsupported(absl::string_view key, absl::string_view rule) {
  Fail(absl::StatusCode::kUnimplemented, key, absl::StrCat("not supported: ", rule));
}

const JsonValue* JsonObjectReader::Find(absl::string_view key) {
  asked_.emplace(key);
  const JsonValue* found = value_.Find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const JsonValue* JsonObjectReader::Require(absl::string_view key) {
  const JsonValue* found = Find(key);
  if (found == nullptr) Invalid(key, "required");
  return found;
}

std::string JsonObjectReader::String(absl::string_view key) {
  const JsonValue* found = Require(key);
  const auto* text = found == nullptr ? nullptr : found->get<std::string>();
  if (found != nullptr && text == nullptr) Invalid(key, "must be a string");
  return text == nullptr ? "" : *text;
}

std::string JsonObjectReader::String(absl::string_view key, absl::string_view fallback) {
  return Find(key) == nullptr ? std::string(fallback) : String(key);
}

bool JsonObjectReader::Bool(absl::string_view key) {
  const JsonValue* found = Require(key);
  const auto* boolean = found == nullptr ? nullptr : found->get<bool>();
  if (found != nullptr && boolean == nullptr) Invalid(key, "must be true or false");
  return boolean != nullptr && *boolean;
}

bool JsonObjectReader::Bool(absl::string_view key, bool fallback) {
  return Find(key) == nullptr ? fallback : Bool(key);
}

const JsonValue::Array* JsonObjectReader::Array(absl::string_view key) {
  const JsonValue* found = Require(key);
  const auto* array = found == nullptr ? nullptr : found->get<JsonValue::Array>();
  if (found != nullptr && array == nullptr) Invalid(key, "must be an array");
  return array;
}

int32_t JsonObjectReader::Id(absl::string_view key) {
  const JsonValue* found = Require(key);
  const int32_t id = found == nullptr ? -1 : IdOrNegative(*found);
  if (found != nullptr && id < 0) Invalid(key, "must be a whole number, 0 .. 2147483647");
  return id;
}

void JsonObjectReader::Absent(absl::string_view key) {
  if (Find(key) != nullptr) Unsupported(key, "must be absent");
}

void JsonObjectReader::AbsentOr(absl::string_view key, const JsonValue& scalar) {
  const JsonValue* found = Find(key);
  if (found == nullptr || SameScalar(*found, scalar)) return;
  Unsupported(key, absl::StrCat("must be absent or ", ShowJson(scalar)));
}

void JsonObjectReader::NoOtherKeys() {
  const auto* members = value_.get<JsonValue::Object>();
  if (members == nullptr) return;
  for (const JsonMember& member : *members) {
    if (!asked_.contains(member.key)) Unsupported(member.key, "this key is not known");
  }
}

}  // namespace tessera
