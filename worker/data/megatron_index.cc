// The .idx of Megatron's indexed datasets, every field of it checked.
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/data/token_format.h"

namespace tessera {
namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr int64_t kVersionAt = 9;
constexpr int64_t kTypeAt = 17;
constexpr int64_t kSequencesAt = 18;
constexpr int64_t kDocumentsAt = 26;
constexpr int64_t kHeaderBytes = 34;

absl::Status Bad(absl::string_view what, int64_t byte, const absl::AlphaNum& value,
                 absl::string_view rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("index: ", what, " at byte ", byte, " is ", value, ", ", rule));
}

// Fields lie unaligned.
template <typename Item>
Item Load(absl::Span<const uint8_t> index, int64_t byte) {
  Item item;
  std::memcpy(&item, index.data() + byte, sizeof(Item));
  return item;
}

absl::StatusOr<TokenType> TypeOfCode(uint8_t code) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 2:
      return TokenType::kI8;
    case 3:
      return TokenType::kI16;
    case 4:
      return TokenType::kI32;
    case 5:
      return TokenType::kI64;
    case 8:
      return TokenType::kU16;
    case 6:
    case 7:
      return Bad("dtype code", kTypeAt, int{code}, "a floating-point type, which no token has");
    default:
      return Bad("dtype code", kTypeAt, int{code}, "not 1 .. 5 or 8");
  }
}

// Where the parts behind the header begin.
struct Parts {
  int64_t sequences, documents;  // entries
  int64_t lengths_at = kHeaderBytes;
  int64_t pointers_at, documents_at, modes_at;
  bool has_modes;
};

absl::StatusOr<Parts> FindParts(absl::Span<const uint8_t> index) {
  const auto size = static_cast<int64_t>(index.size());
  const auto sequences = Load<uint64_t>(index, kSequencesAt);
  const auto documents = Load<uint64_t>(index, kDocumentsAt);
  // Against the size first, so that no product overflows.
  const auto room = static_cast<uint64_t>(size - kHeaderBytes);
  if (sequences > room / 12) {
    return Bad("number of sequences", kSequencesAt, sequences,
               absl::StrCat("more than fit into ", size, " bytes"));
  }
  if (documents > room / 8) {
    return Bad("length of the document index", kDocumentsAt, documents,
               absl::StrCat("more than fits into ", size, " bytes"));
  }
  if (documents < 1) return Bad("length of the document index", kDocumentsAt, 0, "not at least 1");
  Parts parts{};
  parts.sequences = static_cast<int64_t>(sequences);
  parts.documents = static_cast<int64_t>(documents);
  parts.lengths_at = kHeaderBytes;
  parts.pointers_at = parts.lengths_at + 4 * parts.sequences;
  parts.documents_at = parts.pointers_at + 8 * parts.sequences;
  parts.modes_at = parts.documents_at + 8 * parts.documents;
  parts.has_modes = parts.sequences > 0 && size == parts.modes_at + parts.sequences;
  if (size != parts.modes_at && !parts.has_modes) {
    return absl::InvalidArgumentError(
        absl::StrCat("index: ", sequences, " sequences and ", documents,
                     " document entries ask for ", parts.modes_at, " bytes, or ",
                     parts.modes_at + parts.sequences, " with modes, but the file has ", size));
  }
  return parts;
}

// Each sequence begins where the one before ends, and the last ends with the .bin.
absl::Status CheckSequences(absl::Span<const uint8_t> index, const Parts& parts, int item_size,
                            int64_t bin_size_bytes) {
  int64_t expected = 0;
  for (int64_t k = 0; k < parts.sequences; ++k) {
    const int64_t length_at = parts.lengths_at + 4 * k;
    const int64_t pointer_at = parts.pointers_at + 8 * k;
    const auto length = Load<int32_t>(index, length_at);
    const auto pointer = Load<int64_t>(index, pointer_at);
    if (length < 0) {
      return Bad(absl::StrCat("length of sequence ", k), length_at, length, "less than 0");
    }
    if (pointer != expected) {
      return Bad(absl::StrCat("pointer of sequence ", k), pointer_at, pointer,
                 absl::StrCat("not ", expected, ", where the sequence before ends"));
    }
    expected += int64_t{length} * item_size;  // below 2^63: checked against the .bin as it grows
    if (expected > bin_size_bytes) {
      return Bad(absl::StrCat("length of sequence ", k), length_at, length,
                 absl::StrCat("which ends at byte ", expected, " of a .bin of ", bin_size_bytes));
    }
  }
  if (expected != bin_size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("index: the sequences end at byte ", expected,
                                                   ", but the .bin has ", bin_size_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckDocuments(absl::Span<const uint8_t> index, const Parts& parts) {
  int64_t previous = 0;
  for (int64_t d = 0; d < parts.documents; ++d) {
    const int64_t at = parts.documents_at + 8 * d;
    const auto begin = Load<int64_t>(index, at);
    const std::string what = absl::StrCat("document entry ", d);
    if (d == 0 && begin != 0) return Bad(what, at, begin, "not 0");
    if (begin < previous) return Bad(what, at, begin, "less than the one before");
    if (d == parts.documents - 1 && begin != parts.sequences) {
      return Bad(what, at, begin,
                 absl::StrCat("not ", parts.sequences, ", the number of sequences"));
    }
    previous = begin;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenLayout> ParseMegatronIndex(absl::Span<const uint8_t> index,
                                               int64_t bin_size_bytes) {
  if (static_cast<int64_t>(index.size()) < kHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "index: has ", index.size(), " bytes, fewer than the ", kHeaderBytes, " of its header"));
  }
  if (std::memcmp(index.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError("index: does not begin with MMIDIDX and two zero bytes");
  }
  const auto version = Load<uint64_t>(index, kVersionAt);
  if (version != 1) return Bad("version", kVersionAt, version, "not 1");
  absl::StatusOr<TokenType> type = TypeOfCode(index[kTypeAt]);
  if (!type.ok()) return type.status();
  absl::StatusOr<Parts> parts = FindParts(index);
  if (!parts.ok()) return parts.status();
  absl::Status status = CheckSequences(index, *parts, SizeBytes(*type), bin_size_bytes);
  if (status.ok()) status = CheckDocuments(index, *parts);
  if (!status.ok()) return status;
  for (int64_t k = 0; parts->has_modes && k < parts->sequences; ++k) {
    const int mode = index[parts->modes_at + k];
    if (mode != 0) {
      return Bad(absl::StrCat("mode of sequence ", k), parts->modes_at + k, mode,
                 "not 0: only text is read");
    }
  }
  TokenLayout layout;
  layout.type = *type;
  layout.num_tokens = bin_size_bytes / SizeBytes(*type);
  return layout;
}

}  // namespace tessera
