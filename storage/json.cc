#include "storage/json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/utf8.h"

namespace tessera {
namespace {

// Adds to the library's events what it does not check: duplicate keys and limits.
class Adapter {
 public:
  Adapter(const JsonLimits& limits, JsonHandler& handler) : limits_(limits), handler_(handler) {}
  const absl::Status& status() const { return status_; }

  // The interface that nlohmann::json::sax_parse asks for; false ends the parse.
  bool null() { return Count() && Pass(handler_.Null()); }
  bool boolean(bool value) { return Count() && Pass(handler_.Bool(value)); }
  bool number_integer(int64_t value) { return Count() && Pass(handler_.Negative(value)); }
  bool number_unsigned(uint64_t value) { return Count() && Pass(handler_.Unsigned(value)); }
  bool number_float(double value, const std::string&) {
    return Count() && Pass(handler_.Number(value));
  }
  bool string(std::string& value) { return Count() && Pass(handler_.String(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // not in JSON's text form
  bool start_object(size_t) {
    if (!Descend()) return false;
    keys_.back().emplace();
    return Pass(handler_.StartObject());
  }
  bool key(std::string& key) {
    if (!keys_.back()->insert(key).second) {
      return Pass(
          absl::InvalidArgumentError(absl::StrCat("duplicate key ", QuotedForMessage(key))));
    }
    return Pass(handler_.Key(std::move(key)));
  }
  bool end_object() {
    keys_.pop_back();
    return Pass(handler_.EndObject());
  }
  bool start_array(size_t) { return Descend() && Pass(handler_.StartArray()); }
  bool end_array() {
    keys_.pop_back();
    return Pass(handler_.EndArray());
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& error) {
    constexpr int kOutOfRange = 406;  // the library's number for a number that is not finite
    return Pass(absl::InvalidArgumentError(
        absl::StrCat("JSON at byte ", position, ": ",
                     error.id == kOutOfRange ? "a number out of range" : "a syntax error", " at ",
                     QuotedForMessage(token))));
  }

 private:
  bool Pass(absl::Status status) {
    if (!status.ok() && status_.ok()) status_ = std::move(status);
    return status_.ok();
  }
  bool Count() {
    if (num_values_++ < limits_.max_values) return true;
    return Pass(absl::InvalidArgumentError(
        absl::StrCat("JSON has more than ", limits_.max_values, " values")));
  }
  bool Descend() {
    if (!Count()) return false;
    if (static_cast<int>(keys_.size()) >= limits_.max_depth) {
      return Pass(absl::InvalidArgumentError(
          absl::StrCat("JSON is nested deeper than ", limits_.max_depth, " levels")));
    }
    keys_.emplace_back();
    return true;
  }

  const JsonLimits limits_;
  JsonHandler& handler_;
  int64_t num_values_ = 0;
  // By level; empty for an array.
  std::vector<std::optional<absl::flat_hash_set<std::string>>> keys_;
  absl::Status status_;
};

class TreeBuilder : public JsonHandler {
 public:
  absl::Status StartObject() override { return Open({JsonValue::Object()}); }
  absl::Status Key(std::string&& key) override {
    keys_.back() = std::move(key);
    return absl::OkStatus();
  }
  absl::Status EndObject() override { return Close(); }
  absl::Status StartArray() override { return Open({JsonValue::Array()}); }
  absl::Status EndArray() override { return Close(); }
  absl::Status String(std::string&& value) override { return Add({std::move(value)}); }
  absl::Status Unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Add({static_cast<double>(value)});
    }
    return Add({static_cast<int64_t>(value)});
  }
  absl::Status Negative(int64_t value) override { return Add({value}); }
  absl::Status Number(double value) override { return Add({value}); }
  absl::Status Bool(bool value) override { return Add({value}); }
  absl::Status Null() override { return Add({}); }

  JsonValue Take() { return std::move(root_); }

 private:
  absl::Status Open(JsonValue container) {
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return absl::OkStatus();
  }
  absl::Status Close() {
    JsonValue done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return Add(std::move(done));
  }
  absl::Status Add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<JsonValue::Array>(&open_.back().value)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonValue::Object>(open_.back().value)
          .push_back({std::move(keys_.back()), std::move(value)});
    }
    return absl::OkStatus();
  }

  JsonValue root_;
  std::vector<JsonValue> open_;    // containers from the outermost on
  std::vector<std::string> keys_;  // of each: the key that waits for its value
};

// Appends values to a text.
class Formatter {
 public:
  explicit Formatter(bool pretty) : pretty_(pretty) {}

  absl::Status Value(const JsonValue& value) {
    if (const auto* array = value.get<JsonValue::Array>()) return Container('[', *array, ']');
    if (const auto* object = value.get<JsonValue::Object>()) return Container('{', *object, '}');
    if (const auto* text = value.get<std::string>()) return Text(*text);
    if (const auto* number = value.get<double>()) {
      if (!std::isfinite(*number)) {
        return absl::InvalidArgumentError(absl::StrCat("number ", *number, " is not finite"));
      }
      text_ += nlohmann::json(*number).dump();
    } else if (const auto* integer = value.get<int64_t>()) {
      absl::StrAppend(&text_, *integer);
    } else if (const auto* boolean = value.get<bool>()) {
      text_ += *boolean ? "true" : "false";
    } else {
      text_ += "null";
    }
    return absl::OkStatus();
  }
  std::string Take() { return std::move(text_); }

 private:
  absl::Status Text(const std::string& text) {
    TESSERA_ASSIGN_OR_RETURN(std::string quoted, QuoteJson(text));
    text_ += quoted;
    return absl::OkStatus();
  }
  absl::Status Member(const JsonValue& element) { return Value(element); }
  absl::Status Member(const JsonMember& member) {
    TESSERA_RETURN_IF_ERROR(Text(member.key));
    text_ += pretty_ ? ": " : ":";
    return Value(member.value);
  }
  template <typename Members>
  absl::Status Container(char open, const Members& members, char close) {
    text_ += open;
    ++depth_;
    bool first = true;
    for (const auto& member : members) {
      if (!first) text_ += ',';
      first = false;
      NewLine();
      TESSERA_RETURN_IF_ERROR(Member(member));
    }
    --depth_;
    if (!first) NewLine();
    text_ += close;
    return absl::OkStatus();
  }
  void NewLine() {
    if (pretty_) text_.append("\n").append(2 * depth_, ' ');
  }

  const bool pretty_;
  int depth_ = 0;
  std::string text_;
};

}  // namespace

absl::Status ParseJson(absl::string_view text, const JsonLimits& limits, JsonHandler& handler) {
  // The library would skip it; others would not.
  if (absl::StartsWith(text, "\xEF\xBB\xBF")) {
    return absl::InvalidArgumentError("JSON starts with a byte order mark");
  }
  Adapter adapter(limits, handler);
  nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
  return adapter.status();
}

std::string QuotedForMessage(absl::string_view text) {
  constexpr size_t kMaxBytes = 100;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMaxBytes)),
                      text.size() > kMaxBytes ? "'..." : "'");
}

const JsonValue* JsonValue::Find(absl::string_view key) const {
  const auto* object = get<Object>();
  if (object == nullptr) return nullptr;
  for (const auto& [name, member] : *object) {
    if (name == key) return &member;
  }
  return nullptr;
}

absl::StatusOr<JsonValue> ParseJsonValue(absl::string_view text, const JsonLimits& limits) {
  TreeBuilder builder;
  TESSERA_RETURN_IF_ERROR(ParseJson(text, limits, builder));
  return builder.Take();
}

absl::StatusOr<std::string> QuoteJson(absl::string_view text) {
  if (!IsUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("string ", QuotedForMessage(text), " is not UTF-8"));
  }
  return nlohmann::json(std::string(text)).dump();
}

absl::StatusOr<std::string> FormatJson(const JsonValue& value) {
  Formatter formatter(/*pretty=*/false);
  TESSERA_RETURN_IF_ERROR(formatter.Value(value));
  return formatter.Take();
}

absl::StatusOr<std::string> FormatJsonPretty(const JsonValue& value) {
  Formatter formatter(/*pretty=*/true);
  TESSERA_RETURN_IF_ERROR(formatter.Value(value));
  return formatter.Take() + "\n";
}

}  // namespace tessera
