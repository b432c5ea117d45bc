#include "worker/data/byte_pair_encoding.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "worker/data/byte_level.h"

namespace tessera {
namespace {

// The id of the bytes; -1 if they are no token.
int32_t IdOf(const BytePairEncoding::TokenIds& ids, absl::string_view bytes) {
  const auto found = ids.find(bytes);
  return found == ids.end() ? -1 : found->second;
}

}  // namespace

absl::StatusOr<BytePairEncoding> BytePairEncoding::Create(TokenIds ids, const Merges& merges,
                                                          bool whole_tokens_first) {
  BytePairEncoding encoding;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    encoding.byte_ids_[byte] = IdOf(ids, absl::string_view(&c, 1));
    if (encoding.byte_ids_[byte] < 0) {
      return absl::InvalidArgumentError(absl::StrCat("vocabulary: has no token for byte ", byte,
                                                     " (\"", TokenOfBytes(absl::string_view(&c, 1)),
                                                     "\")"));
    }
  }
  encoding.merges_.reserve(merges.size());
  int32_t rank = 0;
  for (const auto& [left, right] : merges) {
    auto error = [&](absl::string_view rule) {
      return absl::InvalidArgumentError(absl::StrCat("merge ", rank, ": \"", TokenOfBytes(left),
                                                     " ", TokenOfBytes(right), "\": ", rule));
    };
    const int32_t left_id = IdOf(ids, left);
    const int32_t right_id = IdOf(ids, right);
    const int32_t merged_id = IdOf(ids, absl::StrCat(left, right));
    if (left_id < 0 || right_id < 0) return error("a part is not in the vocabulary");
    if (merged_id < 0) return error("the result is not in the vocabulary");
    if (!encoding.merges_.emplace(KeyOf(left_id, right_id), Merge{rank, merged_id}).second) {
      return error("stands twice");
    }
    ++rank;
  }
  if (whole_tokens_first) encoding.whole_tokens_ = std::move(ids);
  return encoding;
}

void BytePairEncoding::PushPair(Scratch& scratch, int32_t at) const {
  const Scratch::Symbol& left = scratch.symbols[at];
  if (left.next < 0) return;
  const int32_t right_id = scratch.symbols[left.next].id;
  const auto found = merges_.find(KeyOf(left.id, right_id));
  if (found == merges_.end()) return;
  scratch.heap.push_back({found->second.rank, at, left.id, right_id, found->second.id});
}

void BytePairEncoding::Encode(absl::string_view pretoken, Scratch& scratch,
                              std::vector<int32_t>* ids) const {
  if (!whole_tokens_.empty()) {
    const int32_t id = IdOf(whole_tokens_, pretoken);
    if (id >= 0) return ids->push_back(id);
  }
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<Scratch::Candidate>& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto size = static_cast<int32_t>(pretoken.size());
  for (int32_t i = 0; i < size; ++i) {
    symbols.push_back(
        {byte_ids_[static_cast<uint8_t>(pretoken[i])], i - 1, i + 1 < size ? i + 1 : -1});
  }
  for (int32_t i = 0; i < size; ++i) PushPair(scratch, i);
  // A heap keeps its largest element first: "less" is "merged later".
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.at];
    // A candidate is void once one of its symbols has been merged with another.
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = best.merged;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.at;
    for (const int32_t at : {left.previous, best.at}) {
      if (at < 0) continue;
      const size_t before = heap.size();
      PushPair(scratch, at);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    }
  }
  for (int32_t i = 0; i >= 0 && i < size; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace tessera
