#include "storage/safetensors_writer.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/base/internal/endian.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/status_macros.h"
#include "storage/json.h"

namespace tessera {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kHeaderAlignment = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kMaxDataBytes = uint64_t{1} << 62;

absl::Status CheckNames(const std::vector<SafetensorsSpec>& specs) {
  absl::flat_hash_map<absl::string_view, int> seen;
  for (const SafetensorsSpec& spec : specs) {
    const std::string name = QuotedForMessage(spec.name);
    if (spec.name == "__metadata__") {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, ": the format reserves this name"));
    }
    if (!seen.emplace(spec.name, 0).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", name, ": the name is there twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SizeBytes(const SafetensorsSpec& spec) {
  uint64_t bits = SafetensorsDTypeBits(spec.dtype);
  bool overflows = false;
  for (uint64_t dim : spec.shape) overflows |= __builtin_mul_overflow(bits, dim, &bits);
  if (overflows) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedForMessage(spec.name),
                                                   ": its number of bits is beyond 64 bits"));
  }
  if (bits % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedForMessage(spec.name), ": its ",
                                                   bits, " bits are no whole number of bytes"));
  }
  return static_cast<int64_t>(bits / 8);
}

absl::StatusOr<std::string> FormatHeader(const std::vector<SafetensorsTensor>& tensors,
                                         const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    absl::string_view comma;
    for (const auto& [key, value] : metadata) {
      TESSERA_ASSIGN_OR_RETURN(const std::string quoted_key, QuoteJson(key));
      TESSERA_ASSIGN_OR_RETURN(const std::string quoted_value, QuoteJson(value));
      absl::StrAppend(&json, comma, quoted_key, ":", quoted_value);
      comma = ",";
    }
    json += "}";
  }
  for (const SafetensorsTensor& tensor : tensors) {
    TESSERA_ASSIGN_OR_RETURN(const std::string name, QuoteJson(tensor.name));
    absl::StrAppend(&json, json.size() > 1 ? "," : "", name, ":{\"dtype\":\"",
                    SafetensorsDTypeName(tensor.dtype), "\",\"shape\":[",
                    absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", tensor.begin_bytes,
                    ",", tensor.end_bytes, "]}");
  }
  json += "}";
  json.append((kHeaderAlignment - json.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  if (json.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header takes ", json.size(),
                                                   " bytes, above the format's ", kMaxHeaderBytes));
  }
  return json;
}

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(
    std::vector<SafetensorsSpec> specs, const std::map<std::string, std::string>& metadata) {
  TESSERA_RETURN_IF_ERROR(CheckNames(specs));
  std::sort(specs.begin(), specs.end(), [](const SafetensorsSpec& a, const SafetensorsSpec& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
  SafetensorsLayout layout;
  for (SafetensorsSpec& spec : specs) {
    TESSERA_ASSIGN_OR_RETURN(const int64_t size, SizeBytes(spec));
    const int64_t begin = layout.data_bytes;
    if (static_cast<uint64_t>(begin) + size > kMaxDataBytes) {
      return absl::InvalidArgumentError("the tensors' sizes add up to more than 2^62 bytes");
    }
    layout.data_bytes += size;
    layout.tensors.push_back(
        {std::move(spec.name), spec.dtype, std::move(spec.shape), begin, layout.data_bytes});
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string json, FormatHeader(layout.tensors, metadata));
  layout.head.resize(kLengthBytes);
  absl::little_endian::Store64(layout.head.data(), json.size());
  layout.head += json;
  return layout;
}

SafetensorsWriter::SafetensorsWriter(OutputFile file, SafetensorsLayout layout)
    : layout_(std::move(layout)), file_(std::move(file)) {
  for (size_t i = 0; i < layout_.tensors.size(); ++i) index_.emplace(layout_.tensors[i].name, i);
}

// Before any thread shares it.
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : layout_(std::move(other.layout_)),
      index_(std::move(other.index_)),
      file_(std::move(other.file_)),
      written_(std::move(other.written_)),
      bytes_written_(other.bytes_written_),
      failure_(std::move(other.failure_)) {}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                            SafetensorsLayout layout) {
  TESSERA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path, layout.file_bytes()));
  TESSERA_RETURN_IF_ERROR(file.WriteAt(0, Bytes(layout.head)));
  return SafetensorsWriter(std::move(file), std::move(layout));
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Join(const std::string& path,
                                                          SafetensorsLayout layout) {
  TESSERA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Join(path, layout.file_bytes()));
  TESSERA_ASSIGN_OR_RETURN(const std::string head,
                           file.ReadAt(0, static_cast<int64_t>(layout.head.size())));
  if (head != layout.head) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the temporary file was created for other tensors"));
  }
  return SafetensorsWriter(std::move(file), std::move(layout));
}

absl::Status SafetensorsWriter::Write(absl::string_view name, int64_t offset_bytes,
                                      absl::Span<const uint8_t> bytes) {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    return absl::NotFoundError(
        absl::StrCat(file_.path(), ": there is no tensor ", QuotedForMessage(name)));
  }
  const SafetensorsTensor& tensor = layout_.tensors[it->second];
  const auto size = static_cast<int64_t>(bytes.size());
  if (offset_bytes < 0 || size > tensor.size_bytes() - offset_bytes) {
    return absl::OutOfRangeError(absl::StrCat(file_.path(), ": tensor ", tensor.name, ": ", size,
                                              " bytes at ", offset_bytes, " reach beyond its ",
                                              tensor.size_bytes()));
  }
  if (size == 0) return absl::OkStatus();
  const int64_t begin = tensor.begin_bytes + offset_bytes;
  if (absl::Status status = Mark(begin, begin + size); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(file_.path(), ": tensor ", tensor.name, ": ",
                                                    status.message()));
  }
  absl::Status status = file_.WriteAt(static_cast<int64_t>(layout_.head.size()) + begin, bytes);
  if (!status.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    failure_.Update(status);
  }
  return status;
}

absl::Status SafetensorsWriter::Mark(int64_t begin, int64_t end) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = written_.lower_bound(begin);  // the first range that begins here or later
  const bool touches_previous = next != written_.begin() && std::prev(next)->second >= begin;
  if ((next != written_.end() && next->first < end) ||
      (touches_previous && std::prev(next)->second > begin)) {
    return absl::AlreadyExistsError("bytes are written twice");
  }
  bytes_written_ += end - begin;
  if (next != written_.end() && next->first == end) {
    end = next->second;
    next = written_.erase(next);
  }
  if (touches_previous) {
    std::prev(next)->second = end;
  } else {
    written_.emplace_hint(next, begin, end);
  }
  return absl::OkStatus();
}

std::string SafetensorsWriter::FirstHoleLocked() const {
  const auto first = written_.begin();
  const int64_t hole = first == written_.end() || first->first > 0 ? 0 : first->second;
  for (const SafetensorsTensor& tensor : layout_.tensors) {
    if (hole < tensor.end_bytes) {
      return absl::StrCat("tensor ", QuotedForMessage(tensor.name), " byte ",
                          hole - tensor.begin_bytes);
    }
  }
  return "none";
}

absl::StatusOr<int64_t> SafetensorsWriter::Sync() {
  TESSERA_RETURN_IF_ERROR(file_.Sync());
  std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.ok()) return failure_;
  return bytes_written_;
}

absl::Status SafetensorsWriter::Commit(int64_t bytes_by_others) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (bytes_written_ + bytes_by_others != layout_.data_bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(file_.path(), ": ", bytes_written_, " bytes were written here and ",
                       bytes_by_others, " by others, not the tensors' ", layout_.data_bytes,
                       "; the first that was not written here: ", FirstHoleLocked()));
    }
  }
  return file_.Commit();
}

}  // namespace tessera
