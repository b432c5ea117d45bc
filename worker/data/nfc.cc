#include "worker/data/nfc.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "storage/utf8.h"

namespace tessera {
namespace {

// Of the first byte of a character: ASCII; U+0080 .. U+02FF; U+5000 .. U+9FFF.
bool BeginsInert(uint8_t byte) {
  return byte < 0x80 || (byte >= 0xc2 && byte <= 0xcb) || (byte >= 0xe5 && byte <= 0xe9);
}

absl::Status AppendValidRun(absl::string_view run, std::string* out) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(run.data()),
                   static_cast<utf8proc_ssize_t>(run.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) return absl::ResourceExhaustedError("normalization: no memory");
  if (size < 0) {
    return absl::InternalError(absl::StrCat("normalization: ", utf8proc_errmsg(size)));
  }
  out->append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  return absl::OkStatus();
}

}  // namespace

size_t LastNfcBoundary(absl::string_view text) {
  size_t at = text.size();
  while (at > 0) {
    if (BeginsInert(static_cast<uint8_t>(text[--at]))) return at;
  }
  return 0;
}

absl::Status AppendNfc(absl::string_view text, std::string* out) {
  while (!text.empty()) {
    // A run of ASCII is its own normal form, but its last character may compose with what follows.
    const size_t ascii = AsciiPrefix(text);
    const size_t unchanged = ascii == text.size() || ascii == 0 ? ascii : ascii - 1;
    absl::StrAppend(out, text.substr(0, unchanged));
    text.remove_prefix(unchanged);
    if (text.empty()) break;
    size_t end = 1;
    while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0x80) ++end;
    const size_t valid = ValidUtf8Prefix(text.substr(0, end));
    if (valid == 0) {
      out->push_back(text[0]);
      text.remove_prefix(1);
      continue;
    }
    absl::Status status = AppendValidRun(text.substr(0, valid), out);
    if (!status.ok()) return status;
    text.remove_prefix(valid);
  }
  return absl::OkStatus();
}

}  // namespace tessera
