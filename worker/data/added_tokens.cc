#include "worker/data/added_tokens.h"

#include <algorithm>

namespace tessera {
namespace {

uint64_t KeyOf(int32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

void AddedTokens::Add(absl::string_view content, int32_t id) {
  int32_t node = 0;
  for (const char byte : content) {
    const auto [child, is_new] =
        children_.emplace(KeyOf(node, byte), static_cast<int32_t>(ids_.size()));
    node = child->second;
    if (is_new) ids_.push_back(-1);
  }
  ids_[node] = id;
  is_first_byte_[static_cast<uint8_t>(content[0])] = true;
  max_size_bytes_ = std::max(max_size_bytes_, content.size());
}

AddedTokens::Match AddedTokens::LongestAt(absl::string_view text, size_t begin) const {
  Match match;
  int32_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    const auto child = children_.find(KeyOf(node, text[at]));
    if (child == children_.end()) break;
    node = child->second;
    if (ids_[node] >= 0) match = {begin, at + 1 - begin, ids_[node]};
  }
  return match;
}

AddedTokens::Match AddedTokens::Find(absl::string_view text, size_t begin, size_t end) const {
  for (size_t at = begin; at < end; ++at) {
    if (!is_first_byte_[static_cast<uint8_t>(text[at])]) continue;
    const Match match = LongestAt(text, at);
    if (match.size_bytes > 0) return match;
  }
  return {};
}

}  // namespace tessera
