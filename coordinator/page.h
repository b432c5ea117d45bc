// Pages of a sorted list: size rules and opaque tokens.
#ifndef TESSERA_COORDINATOR_PAGE_H_
#define TESSERA_COORDINATOR_PAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

struct Page {
  int size = 0;
  std::string after;  // list entries after this key
};

// INVALID_ARGUMENT for a negative size or a token that MakePageToken(list, ...) did not make.
absl::StatusOr<Page> ParsePage(absl::string_view list, int page_size, const std::string& token);
std::string MakePageToken(absl::string_view list, absl::string_view last_key);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_PAGE_H_
