#include "storage/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/base/internal/endian.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/json.h"
#include "storage/safetensors_json.h"
#include "storage/utf8.h"

namespace tessera {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct DTypeRow {
  const char* name;
  int bits;
};

constexpr DTypeRow kDTypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};
static_assert(std::size(kDTypes) == static_cast<size_t>(SafetensorsDType::kU64) + 1);

// `reason`: the name that the format's own library gives.
absl::Status Refuse(absl::string_view reason, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(message, " (", reason, ")"));
}

absl::Status RefuseTensor(absl::string_view reason, const std::string& name,
                          absl::string_view message) {
  return Refuse(reason, absl::StrCat("tensor ", QuotedForMessage(name), ": ", message));
}

// The bytes that the header's JSON has. REQUIRES nothing of the file.
absl::StatusOr<uint64_t> HeaderBytes(absl::Span<const uint8_t> file) {
  if (file.size() < kLengthBytes) {
    return Refuse("HeaderTooSmall",
                  absl::StrCat("the file has ", file.size(), " bytes, fewer than ", kLengthBytes));
  }
  const uint64_t length = absl::little_endian::Load64(file.data());
  if (length > kMaxHeaderBytes) {
    return Refuse("HeaderTooLarge",
                  absl::StrCat("the header's length is ", length, ", above ", kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    return Refuse("InvalidHeaderLength",
                  absl::StrCat("the header's length is ", length, ", but only ",
                               file.size() - kLengthBytes, " bytes follow it"));
  }
  return length;
}

// Bytes of a tensor, by its shape and dtype.
absl::StatusOr<uint64_t> SizeOfShape(const std::string& name, SafetensorsDType dtype,
                                     const std::vector<uint64_t>& shape) {
  uint64_t bits = 1;
  bool overflows = false;
  for (uint64_t dim : shape) overflows |= __builtin_mul_overflow(bits, dim, &bits);
  overflows |= __builtin_mul_overflow(bits, SafetensorsDTypeBits(dtype), &bits);
  if (overflows) {
    return RefuseTensor("ValidationOverflow", name, "its number of bits is beyond 64 bits");
  }
  if (bits % 8 != 0) {
    return RefuseTensor("MisalignedSlice", name,
                        absl::StrCat("its ", bits, " bits are no whole number of bytes"));
  }
  return bits / 8;
}

// Each tensor begins where the one before ends. REQUIRES: by offset.
absl::Status CheckTensors(const std::vector<SafetensorsJsonEntry>& entries, uint64_t data_bytes) {
  uint64_t previous_end = 0;
  for (const SafetensorsJsonEntry& entry : entries) {
    if (entry.begin != previous_end || entry.end < entry.begin) {
      return RefuseTensor("InvalidOffset", entry.name,
                          absl::StrCat("data_offsets are [", entry.begin, ", ", entry.end,
                                       "], but the tensor before it ends at ", previous_end));
    }
    previous_end = entry.end;
    TESSERA_ASSIGN_OR_RETURN(const uint64_t size,
                             SizeOfShape(entry.name, entry.dtype, entry.shape));
    if (entry.end - entry.begin != size) {
      return RefuseTensor(
          "TensorInvalidInfo", entry.name,
          absl::StrCat("data_offsets are [", entry.begin, ", ", entry.end, "], ",
                       entry.end - entry.begin, " bytes, but its shape and dtype take ", size));
    }
  }
  if (previous_end != data_bytes) {
    return Refuse("MetadataIncompleteBuffer",
                  absl::StrCat("the tensors end at byte ", previous_end, " of the data, which has ",
                               data_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

int SafetensorsDTypeBits(SafetensorsDType dtype) { return kDTypes[static_cast<int>(dtype)].bits; }

const char* SafetensorsDTypeName(SafetensorsDType dtype) {
  return kDTypes[static_cast<int>(dtype)].name;
}

std::optional<SafetensorsDType> SafetensorsDTypeFromName(absl::string_view name) {
  for (size_t i = 0; i < std::size(kDTypes); ++i) {
    if (name == kDTypes[i].name) return static_cast<SafetensorsDType>(i);
  }
  return std::nullopt;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensors(absl::Span<const uint8_t> file) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t length, HeaderBytes(file));
  const absl::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!IsUtf8(text)) return Refuse("InvalidHeader", "the header is not UTF-8");
  absl::StatusOr<SafetensorsJson> json = ParseSafetensorsJson(text);
  if (!json.ok()) {
    return Refuse("InvalidHeaderDeserialization",
                  absl::StrCat("the header: ", json.status().message()));
  }
  std::sort(json->entries.begin(), json->entries.end(),
            [](const SafetensorsJsonEntry& a, const SafetensorsJsonEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  TESSERA_RETURN_IF_ERROR(CheckTensors(json->entries, file.size() - kLengthBytes - length));

  SafetensorsHeader header;
  header.metadata = std::move(json->metadata);
  header.data_offset_bytes = static_cast<int64_t>(kLengthBytes + length);
  header.tensors.reserve(json->entries.size());
  for (SafetensorsJsonEntry& entry : json->entries) {
    header.tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape),
                              static_cast<int64_t>(entry.begin), static_cast<int64_t>(entry.end)});
  }
  return header;
}

SafetensorsFile::SafetensorsFile(std::string path, MappedFile file, SafetensorsHeader header)
    : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {
  index_.reserve(header_.tensors.size());
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_.emplace(header_.tensors[i].name, i);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  auto with_path = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return with_path(file.status());
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensors(file->bytes());
  if (!header.ok()) return with_path(header.status());
  return SafetensorsFile(path, *std::move(file), *std::move(header));
}

const SafetensorsTensor* SafetensorsFile::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &header_.tensors[it->second];
}

absl::Span<const uint8_t> SafetensorsFile::bytes(const SafetensorsTensor& tensor) const {
  return file_.bytes().subspan(header_.data_offset_bytes + tensor.begin_bytes, tensor.size_bytes());
}

}  // namespace tessera
