#include "storage/tier_value.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/status_macros.h"
#include "storage/crc32c.h"

namespace tessera {
namespace {

constexpr uint32_t kValueMagic = 0x31765354, kRecordMagic = 0x31725354;  // "TSv1", "TSr1"
constexpr uint8_t kVersion = 1;
constexpr size_t kMaxNameBytes = 255;
constexpr size_t kStepBytes = 8;
constexpr int64_t kMaxValueBytes = int64_t{1} << 30;

// Big-endian, so that keys are ordered as the numbers are.
template <typename Number>
void AppendBigEndian(std::string& to, Number number) {
  for (int shift = 8 * (sizeof(Number) - 1); shift >= 0; shift -= 8) {
    to.push_back(static_cast<char>(static_cast<uint64_t>(number) >> shift));
  }
}

template <typename Number>
void Append(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void AppendName(std::string& to, absl::string_view name) {
  Append(to, static_cast<uint8_t>(name.size()));
  to.append(name.data(), name.size());
}

// Takes fields off the front. Once one was missing, is_ok() stays false.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}
  template <typename Number>
  Number Take() {
    Number number = {};
    const absl::string_view field = TakeBytes(sizeof(Number));
    if (is_ok_) std::memcpy(&number, field.data(), sizeof(Number));
    return number;
  }
  absl::string_view TakeBytes(size_t size) {
    is_ok_ = is_ok_ && size <= bytes_.size();
    if (!is_ok_) return {};
    const absl::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string TakeName() { return std::string(TakeBytes(Take<uint8_t>())); }
  bool is_ok() const { return is_ok_; }
  bool is_empty() const { return bytes_.empty(); }

 private:
  absl::string_view bytes_;
  bool is_ok_ = true;
};

void AppendHeader(std::string& to, const TierValueHeader& header) {
  Append(to, kValueMagic);
  Append(to, kVersion);
  Append(to, static_cast<uint8_t>(header.dtype));
  Append(to, static_cast<uint8_t>(header.shape.size()));
  for (const int64_t dim : header.shape) Append(to, dim);
  Append(to, header.crc);
  AppendName(to, header.unit);
  AppendName(to, header.kind);
  Append(to, header.begin);
}

// Whether the shape is one that a value may have, so that its size can be computed.
bool IsShape(const TierValueHeader& header) {
  if (header.shape.size() > TierValueHeader::kMaxDims) return false;
  int64_t left = kMaxValueBytes / DTypeSizeBytes(header.dtype);
  for (const int64_t dim : header.shape) {
    if (dim < 0 || dim > left) return false;
    if (dim > 0) left /= dim;
  }
  return true;
}

absl::StatusOr<TierValueHeader> TakeHeader(Reader& from) {
  TierValueHeader header;
  if (from.Take<uint32_t>() != kValueMagic) return absl::DataLossError("magic of a value");
  if (from.Take<uint8_t>() != kVersion) return absl::DataLossError("version of a value");
  const auto dtype = from.Take<uint8_t>();
  header.dtype = static_cast<DType>(dtype);
  if (DTypeSizeBytes(header.dtype) == 0) {
    return absl::DataLossError(absl::StrCat("dtype ", dtype, " of a value"));
  }
  const auto dims = from.Take<uint8_t>();
  for (int i = 0; i < dims; ++i) header.shape.push_back(from.Take<int64_t>());
  if (!IsShape(header)) return absl::DataLossError("shape of a value");
  header.crc = from.Take<uint32_t>();
  header.unit = from.TakeName();
  header.kind = from.TakeName();
  header.begin = from.Take<int64_t>();
  if (!from.is_ok()) return absl::DataLossError("value header is cut off");
  return header;
}

uint32_t CrcOf(absl::string_view bytes) {
  return Crc32c({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace

std::string TierKey::ToString() const {
  return absl::StrCat("job ", job, " step ", step, " unit ", unit, " ", kind, " at ", begin);
}

absl::Status CheckTierStep(absl::string_view job, int64_t step) {
  if (job.empty() || job.size() > kMaxNameBytes || job == "." || job == ".." ||
      absl::StrContains(job, '/') || absl::StrContains(job, '\0')) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", job, "': must be a file's name of 1 to 255 bytes"));
  }
  if (step < 0) return absl::InvalidArgumentError(absl::StrCat("step ", step, ": must be >= 0"));
  return absl::OkStatus();
}

absl::Status CheckTierKey(const TierKey& key) {
  TESSERA_RETURN_IF_ERROR(CheckTierStep(key.job, key.step));
  if (key.unit.size() > kMaxNameBytes || key.kind.size() > kMaxNameBytes || key.begin < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        key.ToString(), ": names must have at most 255 bytes, and the first element be >= 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckTierShape(const TierValueHeader& header, int64_t size_bytes) {
  if (IsShape(header) && header.size_bytes() == size_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unit ", header.unit, " ", header.kind, " at ", header.begin, ": ", size_bytes,
                   " bytes are no ", DTypeName(header.dtype), " (",
                   absl::StrJoin(header.shape, ", "), "), or are above ", kMaxValueBytes));
}

int64_t TierValueHeader::num_elements() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

std::string TierStepPrefix(absl::string_view job, int64_t step) {
  std::string prefix = absl::StrCat(job, "/");
  AppendBigEndian(prefix, step);
  return prefix;
}

std::string TierStepEnd(absl::string_view job, int64_t step) {
  std::string end = absl::StrCat(job, "/");
  AppendBigEndian(end, static_cast<uint64_t>(step) + 1);
  return end;
}

absl::StatusOr<TierStepName> ParseTierStepPrefix(absl::string_view key) {
  const size_t slash = key.find('/');
  if (slash == absl::string_view::npos || slash == 0 || key.size() < slash + 1 + kStepBytes) {
    return absl::DataLossError("a key names no step");
  }
  uint64_t step = 0;
  for (size_t i = 0; i < kStepBytes; ++i) {
    step = step << 8 | static_cast<uint8_t>(key[slash + 1 + i]);
  }
  if (step > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::DataLossError("a key's step is negative");
  }
  return TierStepName{std::string(key.substr(0, slash)), static_cast<int64_t>(step)};
}

absl::StatusOr<uint32_t> ParseTierFile(absl::string_view key) {
  const size_t begin = key.find('/') + 1 + kStepBytes;
  if (begin + sizeof(uint32_t) > key.size()) return absl::DataLossError("a key names no file");
  uint32_t file = 0;
  for (size_t i = 0; i < sizeof(file); ++i) file = file << 8 | static_cast<uint8_t>(key[begin + i]);
  return file;
}

std::string TierValueKey(absl::string_view step_prefix, TierPlace place,
                         const TierValueHeader& header) {
  std::string key(step_prefix);
  AppendBigEndian(key, place.file);
  AppendBigEndian(key, place.ordinal);
  AppendHeader(key, header);
  return key;
}

int64_t TierStepRecord::size_bytes() const {
  int64_t bytes = 0;
  for (const Value& value : values) bytes += value.header.size_bytes();
  return bytes;
}

std::string EncodeTierStepRecord(const TierStepRecord& record) {
  std::string bytes;
  Append(bytes, kRecordMagic);
  Append(bytes, kVersion);
  Append(bytes, static_cast<uint32_t>(record.metadata.size()));
  bytes += record.metadata;
  Append(bytes, static_cast<uint32_t>(record.values.size()));
  for (const TierStepRecord::Value& value : record.values) {
    Append(bytes, value.place.file);
    Append(bytes, value.place.ordinal);
    Append(bytes, value.offset);
    AppendHeader(bytes, value.header);
  }
  Append(bytes, CrcOf(bytes));
  return bytes;
}

absl::StatusOr<TierStepRecord> DecodeTierStepRecord(absl::string_view bytes) {
  uint32_t crc = 0;
  if (bytes.size() < sizeof(crc)) return absl::DataLossError("commit record is cut off");
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof(crc), sizeof(crc));
  bytes.remove_suffix(sizeof(crc));
  if (CrcOf(bytes) != crc) return absl::DataLossError("commit record has another crc32c");
  Reader from(bytes);
  if (from.Take<uint32_t>() != kRecordMagic) return absl::DataLossError("magic of a commit record");
  if (from.Take<uint8_t>() != kVersion) return absl::DataLossError("version of a commit record");
  TierStepRecord record;
  record.metadata = std::string(from.TakeBytes(from.Take<uint32_t>()));
  const auto count = from.Take<uint32_t>();
  for (uint32_t i = 0; i < count && from.is_ok(); ++i) {
    TierStepRecord::Value value;
    value.place.file = from.Take<uint32_t>();
    value.place.ordinal = from.Take<uint32_t>();
    value.offset = from.Take<int64_t>();
    TESSERA_ASSIGN_OR_RETURN(value.header, TakeHeader(from));
    record.values.push_back(std::move(value));
  }
  if (!from.is_ok() || !from.is_empty()) {
    return absl::DataLossError("commit record has another length");
  }
  return record;
}

}  // namespace tessera
