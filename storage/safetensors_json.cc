#include "storage/safetensors_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/json.h"

namespace tessera {
namespace {

// As serde_json, with which the format's own library reads.
constexpr int kMaxDepth = 127;

// Builds the entries while the text is read, so that a header takes no tree of values.
class HeaderHandler : public JsonHandler {
 public:
  absl::Status StartObject() override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return absl::OkStatus();
      case Place::kTensor:
        json_.entries.emplace_back().name = name_;
        has_dtype_ = has_shape_ = false;
        num_offsets_ = -1;
        place_ = Place::kEntry;
        return absl::OkStatus();
      case Place::kMetadata:
        place_ = Place::kMetadataEntry;
        return absl::OkStatus();
      default:
        return Nest("an object");
    }
  }

  absl::Status Key(std::string&& key) override {
    if (skipped_levels_ > 0) return absl::OkStatus();
    if (place_ == Place::kTop) {
      name_ = std::move(key);
      place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
    } else if (place_ == Place::kEntry) {
      place_ = key == "dtype"          ? Place::kDType
               : key == "shape"        ? Place::kShape
               : key == "data_offsets" ? Place::kOffsets
                                       : Place::kIgnored;
    } else {  // kMetadataEntry
      metadata_key_ = std::move(key);
    }
    return absl::OkStatus();
  }

  absl::Status EndObject() override {
    if (skipped_levels_ > 0) return Unnest();
    if (place_ == Place::kEntry) {
      if (!has_dtype_) return Wrong("has no dtype");
      if (!has_shape_) return Wrong("has no shape");
      if (num_offsets_ < 0) return Wrong("has no data_offsets");
      place_ = Place::kTop;
    } else if (place_ == Place::kMetadataEntry) {
      place_ = Place::kTop;
    } else {
      place_ = Place::kEnd;
    }
    return absl::OkStatus();
  }

  absl::Status StartArray() override {
    if (place_ == Place::kShape) {
      place_ = Place::kShapeDims;
      return absl::OkStatus();
    }
    if (place_ == Place::kOffsets) {
      place_ = Place::kOffsetPair;
      num_offsets_ = 0;
      return absl::OkStatus();
    }
    return Nest("an array");
  }

  absl::Status EndArray() override {
    if (skipped_levels_ > 0) return Unnest();
    if (place_ == Place::kOffsetPair && num_offsets_ != 2) return Wrong("data_offsets are no pair");
    has_shape_ |= place_ == Place::kShapeDims;
    place_ = Place::kEntry;
    return absl::OkStatus();
  }

  absl::Status Unsigned(uint64_t value) override {
    if (place_ == Place::kShapeDims) {
      json_.entries.back().shape.push_back(value);
      return absl::OkStatus();
    }
    if (place_ == Place::kOffsetPair) {
      if (num_offsets_ == 2) return Wrong("data_offsets are no pair");
      (num_offsets_ == 0 ? json_.entries.back().begin : json_.entries.back().end) = value;
      ++num_offsets_;
      return absl::OkStatus();
    }
    return Scalar(absl::StrCat(value));
  }

  absl::Status String(std::string&& value) override {
    if (place_ == Place::kDType) {
      const std::optional<SafetensorsDType> dtype = SafetensorsDTypeFromName(value);
      if (!dtype) return Wrong(absl::StrCat("unknown dtype ", QuotedForMessage(value)));
      json_.entries.back().dtype = *dtype;
      has_dtype_ = true;
      place_ = Place::kEntry;
      return absl::OkStatus();
    }
    if (place_ == Place::kMetadataEntry) {
      json_.metadata[std::move(metadata_key_)] = std::move(value);
      return absl::OkStatus();
    }
    return Scalar(QuotedForMessage(value));
  }

  absl::Status Negative(int64_t value) override { return Scalar(absl::StrCat(value)); }
  absl::Status Number(double value) override { return Scalar(absl::StrCat(value)); }
  absl::Status Bool(bool value) override { return Scalar(value ? "true" : "false"); }
  absl::Status Null() override { return Scalar("null"); }

  SafetensorsJson Take() { return std::move(json_); }

 private:
  enum class Place {
    kStart,
    kTop,     // between the members of the document
    kTensor,  // before the value of a tensor
    kEntry,   // between the members of a tensor
    kDType,   // before the value of that member, and so on
    kShape,
    kShapeDims,
    kOffsets,
    kOffsetPair,
    kIgnored,
    kMetadata,
    kMetadataEntry,  // between the members of __metadata__
    kEnd,
  };

  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedForMessage(name_), ": ", what));
  }

  // A value that no member asks for by its kind.
  absl::Status Scalar(absl::string_view value) {
    switch (place_) {
      case Place::kIgnored:
        if (skipped_levels_ == 0) place_ = Place::kEntry;
        return absl::OkStatus();
      case Place::kTensor:
        return Wrong(absl::StrCat(value, " is not an object"));
      case Place::kDType:
        return Wrong(absl::StrCat("dtype ", value, " is not a string"));
      case Place::kShape:
        return Wrong(absl::StrCat("shape ", value, " is not an array"));
      case Place::kShapeDims:
        return Wrong(absl::StrCat("shape has ", value, ", not an unsigned 64-bit integer"));
      case Place::kOffsets:
        return Wrong(absl::StrCat("data_offsets ", value, " is not an array"));
      case Place::kOffsetPair:
        return Wrong(absl::StrCat("data_offsets have ", value, ", not an unsigned 64-bit integer"));
      case Place::kMetadata:
        return absl::InvalidArgumentError(
            absl::StrCat("__metadata__ ", value, " is not an object"));
      case Place::kMetadataEntry:
        return absl::InvalidArgumentError(absl::StrCat("__metadata__: the value ", value, " of ",
                                                       QuotedForMessage(metadata_key_),
                                                       " is not a string"));
      default:
        return absl::InvalidArgumentError(absl::StrCat(value, " is not an object"));
    }
  }

  // An array or object begins where it is ignored, or wrong.
  absl::Status Nest(absl::string_view kind) {
    if (place_ != Place::kIgnored) return Scalar(kind);
    ++skipped_levels_;
    return absl::OkStatus();
  }
  absl::Status Unnest() {
    if (--skipped_levels_ == 0) place_ = Place::kEntry;
    return absl::OkStatus();
  }

  Place place_ = Place::kStart;
  int skipped_levels_ = 0;  // arrays and objects open inside an ignored member
  std::string name_, metadata_key_;
  bool has_dtype_ = false, has_shape_ = false;
  int num_offsets_ = -1;  // read so far; -1 before the array
  SafetensorsJson json_;
};

}  // namespace

absl::StatusOr<SafetensorsJson> ParseSafetensorsJson(absl::string_view text) {
  HeaderHandler handler;
  TESSERA_RETURN_IF_ERROR(ParseJson(text, {.max_depth = kMaxDepth}, handler));
  return handler.Take();
}

}  // namespace tessera
