// JSON of other people: parsed strictly, and written. The one place that knows the JSON library.
#ifndef TESSERA_STORAGE_JSON_H_
#define TESSERA_STORAGE_JSON_H_

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Receives a document's events in order. The first error that a call returns ends the parse.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual absl::Status StartObject() = 0;
  // Never one that the object has had.
  virtual absl::Status Key(std::string&& key) = 0;
  virtual absl::Status EndObject() = 0;
  virtual absl::Status StartArray() = 0;
  virtual absl::Status EndArray() = 0;
  virtual absl::Status String(std::string&& value) = 0;
  virtual absl::Status Unsigned(uint64_t value) = 0;
  // Written with a minus sign and no fraction or exponent: -0 too.
  virtual absl::Status Negative(int64_t value) = 0;
  // Written with a fraction or exponent, or an integer beyond 64 bits; finite.
  virtual absl::Status Number(double value) = 0;
  virtual absl::Status Bool(bool value) = 0;
  virtual absl::Status Null() = 0;
};

// Bounds of what a text may make its reader build.
struct JsonLimits {
  int max_depth = 32;  // of arrays and objects in each other
  // Objects, arrays and scalars together. Without it, only the text's size bounds them.
  int64_t max_values = std::numeric_limits<int64_t>::max();
};

// RFC 8259: UTF-8 without a byte order mark, one value with white space around it. Memory is
// proportional to the text.
// INVALID_ARGUMENT: syntax, with the byte; a key that an object has twice; a limit that is passed;
// a number that is not finite as a double.
absl::Status ParseJson(absl::string_view text, const JsonLimits& limits, JsonHandler& handler);

// Text of others for a message: quoted, escaped, and cut after 100 bytes.
std::string QuotedForMessage(absl::string_view text);

struct JsonMember;

// A document as a tree. Objects keep the order of the text.
struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;
  // monostate is null; integers beyond int64_t are doubles.
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value;

  bool is_null() const { return std::holds_alternative<std::monostate>(value); }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
  // The member of an object; null if it is none or lacks it.
  const JsonValue* Find(absl::string_view key) const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// ParseJson into a tree.
absl::StatusOr<JsonValue> ParseJsonValue(absl::string_view text, const JsonLimits& limits = {});

// A string with its quotes. INVALID_ARGUMENT: it is not UTF-8.
absl::StatusOr<std::string> QuoteJson(absl::string_view text);

// On one line, as "{\"a\":[1,2]}". INVALID_ARGUMENT: a string that is not UTF-8, or a number that
// is not finite.
absl::StatusOr<std::string> FormatJson(const JsonValue& value);
// The same with an indentation of two, and a line's end at the end.
absl::StatusOr<std::string> FormatJsonPretty(const JsonValue& value);

}  // namespace tessera

#endif  // TESSERA_STORAGE_JSON_H_
