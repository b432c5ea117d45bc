#include "worker/data/strict_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// Builds the document from the parser's events; each returns false to end the parse.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  const std::string& error() const { return error_; }
  Json&& TakeRoot() { return std::move(root_); }

  bool null() override { return Place(nullptr) != nullptr; }
  bool boolean(bool value) override { return Place(value) != nullptr; }
  bool number_integer(int64_t value) override { return Place(value) != nullptr; }
  bool number_unsigned(uint64_t value) override { return Place(value) != nullptr; }
  bool number_float(double value, const std::string& /*text*/) override {
    return Place(value) != nullptr;
  }
  bool string(std::string& value) override { return Place(std::move(value)) != nullptr; }
  bool binary(Json::binary_t& /*value*/) override { return Fail("holds a binary value"); }
  bool start_object(size_t /*size*/) override { return Open(Json::object()); }
  bool start_array(size_t /*size*/) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Json& object = *open_.back();
    const size_t before = object.size();
    slot_ = &object[name];
    return object.size() > before || Fail(absl::StrCat("key \"", name, "\" stands twice"));
  }

  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& error) override {
    absl::string_view text = error.what();
    const size_t prefix = text.find("] ");  // "[json.exception.parse_error.101] "
    if (prefix != absl::string_view::npos) text.remove_prefix(prefix + 2);
    return Fail(text);
  }

 private:
  bool Fail(absl::string_view error) {
    if (error_.empty()) error_ = std::string(error);
    return false;
  }

  // Where the value now is; null where a limit is passed. Only the innermost open container grows,
  // so that pointers to the open ones stay good.
  Json* Place(Json value) {
    if (++values_ > limits_.max_values) {
      Fail(absl::StrCat("has more than ", limits_.max_values, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *slot_ = std::move(value);
    return slot_;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) == limits_.max_depth) {
      return Fail(absl::StrCat("is nested deeper than ", limits_.max_depth));
    }
    Json* placed = Place(std::move(container));
    if (placed == nullptr) return false;
    open_.push_back(placed);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  // of the key that came last
  int64_t values_ = 0;
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> ParseStrictJson(absl::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat("JSON: ", builder.error()));
  }
  return builder.TakeRoot();
}

}  // namespace tessera
