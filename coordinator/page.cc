#include "coordinator/page.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {
constexpr int kDefaultSize = 100;
constexpr int kMaxSize = 1000;
}  // namespace

absl::StatusOr<Page> ParsePage(absl::string_view list, int page_size, const std::string& token) {
  if (page_size < 0) {
    return InvalidField("page_size", absl::StrCat(page_size), "must not be negative");
  }
  Page page;
  page.size = page_size == 0 ? kDefaultSize : std::min(page_size, kMaxSize);
  if (!token.empty()) {
    std::string text;
    absl::string_view rest;
    const bool valid = absl::WebSafeBase64Unescape(token, &text);
    rest = text;
    if (!valid || !absl::ConsumePrefix(&rest, absl::StrCat(list, "\n"))) {
      return InvalidField("page_token", token.substr(0, 80), "was not issued for this list");
    }
    page.after = std::string(rest);
  }
  return page;
}

std::string MakePageToken(absl::string_view list, absl::string_view last_key) {
  return absl::WebSafeBase64Escape(absl::StrCat(list, "\n", last_key));
}

}  // namespace tessera
