#include "worker/data/json_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"

namespace tessera {

using Json = nlohmann::json;

std::string ShowJson(const Json& value) {
  constexpr size_t kShownBytes = 80;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = absl::StrCat(text.substr(0, kShownBytes), "...");
  return text;
}

int32_t IdOrNegative(const Json& value) {
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) return -1;
  return value.get<int32_t>();
}

JsonObjectReader::JsonObjectReader(const Json& value, std::string path, absl::Status* status)
    : value_(value), path_(std::move(path)), status_(status) {
  if (!value_.is_object() && status_->ok()) {
    *status_ =
        InvalidField(path_.empty() ? "(root)" : path_, ShowJson(value_), "must be an object");
  }
}

std::string JsonObjectReader::PathOf(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

void JsonObjectReader::Fail(absl::StatusCode code, absl::string_view key, absl::string_view rule) {
  if (!status_->ok()) return;
  const auto found = value_.find(std::string(key));
  *status_ = FieldError(code, PathOf(key), found == value_.end() ? "" : ShowJson(*found), rule);
}

void JsonObjectReader::Invalid(absl::string_view key, absl::string_view rule) {
  Fail(absl::StatusCode::kInvalidArgument, key, rule);
}

void JsonObjectReader::Unsupported(absl::string_view key, absl::string_view rule) {
  Fail(absl::StatusCode::kUnimplemented, key, absl::StrCat("not supported: ", rule));
}

const Json* JsonObjectReader::Find(absl::string_view key) {
  if (!value_.is_object()) return nullptr;
  asked_.emplace(key);
  const auto found = value_.find(std::string(key));
  return found == value_.end() || found->is_null() ? nullptr : &*found;
}

const Json* JsonObjectReader::Require(absl::string_view key) {
  const Json* found = Find(key);
  if (found == nullptr) Invalid(key, "required");
  return found;
}

std::string JsonObjectReader::String(absl::string_view key) {
  const Json* found = Require(key);
  if (found != nullptr && !found->is_string()) Invalid(key, "must be a string");
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

std::string JsonObjectReader::String(absl::string_view key, absl::string_view fallback) {
  return Find(key) == nullptr ? std::string(fallback) : String(key);
}

bool JsonObjectReader::Bool(absl::string_view key) {
  const Json* found = Require(key);
  if (found != nullptr && !found->is_boolean()) Invalid(key, "must be true or false");
  return found != nullptr && found->is_boolean() && found->get<bool>();
}

bool JsonObjectReader::Bool(absl::string_view key, bool fallback) {
  return Find(key) == nullptr ? fallback : Bool(key);
}

int32_t JsonObjectReader::Id(absl::string_view key) {
  const Json* found = Require(key);
  const int32_t id = found == nullptr ? -1 : IdOrNegative(*found);
  if (found != nullptr && id < 0) Invalid(key, "must be a whole number, 0 .. 2147483647");
  return id;
}

void JsonObjectReader::OnlyOneOf(absl::string_view key, std::initializer_list<Json> values) {
  const Json* found = Find(key);
  if (found == nullptr || std::find(values.begin(), values.end(), *found) != values.end()) return;
  std::string rule = "must be absent";
  for (const Json& value : values) absl::StrAppend(&rule, " or ", ShowJson(value));
  Unsupported(key, rule);
}

void JsonObjectReader::NoOtherKeys() {
  if (!value_.is_object()) return;
  for (const auto& item : value_.items()) {
    if (!asked_.contains(item.key())) Unsupported(item.key(), "this key is not known");
  }
}

}  // namespace tessera
