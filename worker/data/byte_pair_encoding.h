// Byte-pair merges of one pre-token (Sennrich et al., arXiv 1508.07909, section 3.2), over bytes as
// in GPT-2.
#ifndef TESSERA_WORKER_DATA_BYTE_PAIR_ENCODING_H_
#define TESSERA_WORKER_DATA_BYTE_PAIR_ENCODING_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Merges by rank. Immutable, thread-safe.
class BytePairEncoding {
 public:
  using TokenIds = absl::flat_hash_map<std::string, int32_t>;  // bytes -> id
  using Merges = std::vector<std::pair<std::string, std::string>>;

  // The rank of a merge is its place. With whole_tokens_first a pre-token that is a token is that
  // token, whatever the merges make of it ("ignore_merges" of tokenizer.json).
  // INVALID_ARGUMENT: a byte without a token, or a merge that stands twice, or whose parts or
  // result are no tokens.
  static absl::StatusOr<BytePairEncoding> Create(TokenIds ids, const Merges& merges,
                                                 bool whole_tokens_first);

  // What Encode works in; reused from call to call. For one thread.
  class Scratch {
    friend class BytePairEncoding;
    struct Symbol {
      int32_t id;  // -1: merged into the one before
      int32_t previous, next;
    };
    struct Candidate {
      int32_t rank, at;  // the left symbol's place
      int32_t left, right, merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the pre-token's ids: of all pairs that have a merge the one of lowest rank, then the
  // leftmost, is merged, until there is none. O(n log n) for n bytes.
  // REQUIRES: n < 2^31.
  void Encode(absl::string_view pretoken, Scratch& scratch, std::vector<int32_t>* ids) const;

 private:
  struct Merge {
    int32_t rank, id;
  };
  static uint64_t KeyOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  void PushPair(Scratch& scratch, int32_t at) const;

  std::array<int32_t, 256> byte_ids_{};
  absl::flat_hash_map<uint64_t, Merge> merges_;
  TokenIds whole_tokens_;  // empty unless whole_tokens_first
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_BYTE_PAIR_ENCODING_H_
