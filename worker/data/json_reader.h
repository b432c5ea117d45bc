// Reads JSON objects key by key, remembering the first thing that is wrong.
#ifndef TESSERA_WORKER_DATA_JSON_READER_H_
#define TESSERA_WORKER_DATA_JSON_READER_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "storage/json.h"

namespace tessera {

// Of a tokenizer's files and of lines of JSON.
inline constexpr JsonLimits kDataJsonLimits = {.max_depth = 64, .max_values = int64_t{1} << 22};

// The value as it is shown in an error: JSON, cut after some 80 bytes.
// REQUIRES: it was parsed from JSON.
std::string ShowJson(const JsonValue& value);

// One object. After the first error every read gives its fallback, so that callers look at *status
// once, at the end. `value` and `status` outlive the reader.
class JsonObjectReader {
 public:
  // A value that is no object is an error at `path` ("model.vocab"; the root has an empty path).
  JsonObjectReader(const JsonValue& value, std::string path, absl::Status* status);

  // The value of a key; null if it is absent or null.
  const JsonValue* Find(absl::string_view key);
  // As Find, but absent is an error.
  const JsonValue* Require(absl::string_view key);
  // Another type is an error; so is absence, where there is no fallback.
  std::string String(absl::string_view key);
  std::string String(absl::string_view key, absl::string_view fallback);
  bool Bool(absl::string_view key);
  bool Bool(absl::string_view key, bool fallback);
  // As Require: null if it is no array.
  const JsonValue::Array* Array(absl::string_view key);
  // 0 .. 2^31 - 1.
  int32_t Id(absl::string_view key);
  // Absent or null; anything else is UNIMPLEMENTED.
  void Absent(absl::string_view key);
  // Absent, null or equal to the scalar; anything else is UNIMPLEMENTED.
  void AbsentOr(absl::string_view key, const JsonValue& scalar);
  // A key that nothing has asked for is UNIMPLEMENTED: it may change the meaning of the rest.
  void NoOtherKeys();

  std::string PathOf(absl::string_view key) const;
  // Unless there is an error already.
  void Invalid(absl::string_view key, absl::string_view rule);
  void Unsupported(absl::string_view key, absl::string_view rule);

 private:
  void Fail(absl::StatusCode code, absl::string_view key, absl::string_view rule);

  const JsonValue& value_;
  const std::string path_;
  absl::Status* const status_;
  std::set<std::string, std::less<>> asked_;
};

// An id: 0 .. 2^31 - 1. -1 for any other value.
int32_t IdOrNegative(const JsonValue& value);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_JSON_READER_H_
