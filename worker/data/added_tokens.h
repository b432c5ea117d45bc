// Tokens that are found in raw text before it is cut into pre-tokens ("added_tokens" of
// tokenizer.json).
#ifndef TESSERA_WORKER_DATA_ADDED_TOKENS_H_
#define TESSERA_WORKER_DATA_ADDED_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace tessera {

// A trie over the tokens' bytes. Thread-safe while nothing is added.
class AddedTokens {
 public:
  // REQUIRES: content is not empty and was not added before.
  void Add(absl::string_view content, int32_t id);

  bool empty() const { return max_size_bytes_ == 0; }
  size_t max_size_bytes() const { return max_size_bytes_; }

  struct Match {
    size_t begin = 0;
    size_t size_bytes = 0;  // 0: there is none
    int32_t id = -1;
  };
  // The first token that begins in [begin, end), the longest where several begin at one place.
  // A token may go on beyond `end`.
  Match Find(absl::string_view text, size_t begin, size_t end) const;

 private:
  Match LongestAt(absl::string_view text, size_t begin) const;

  std::vector<int32_t> ids_{-1};  // by node; -1: no token ends here; node 0 is the root
  absl::flat_hash_map<uint64_t, int32_t> children_;  // node << 8 | byte -> node
  bool is_first_byte_[256] = {};
  size_t max_size_bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_ADDED_TOKENS_H_
