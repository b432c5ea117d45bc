#include "worker/data/text_encoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/data/nfc.h"

namespace tessera {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
// A word and its space; longer pre-tokens hardly come twice.
constexpr size_t kMaxCachedBytes = 32;
constexpr size_t kMaxCachedPretokens = size_t{1} << 17;

}  // namespace

TextEncoder::TextEncoder(const Tokenizer& tokenizer, SpecialTokens special)
    : tokenizer_(tokenizer),
      added_tokens_(tokenizer.added_tokens(special)),
      reader_(tokenizer.pretokenizer()) {}

absl::Status TextEncoder::Feed(absl::string_view block, std::vector<int32_t>* ids) {
  absl::StrAppend(&raw_, block);
  return Advance(false, ids);
}

absl::Status TextEncoder::Finish(std::vector<int32_t>* ids) { return Advance(true, ids); }

absl::StatusOr<std::vector<int32_t>> TextEncoder::Encode(absl::string_view text) {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4);
  for (size_t begin = 0; begin < text.size(); begin += kBlockBytes) {
    const absl::Status status = Feed(text.substr(begin, kBlockBytes), &ids);
    if (!status.ok()) return status;
  }
  const absl::Status status = Finish(&ids);
  if (!status.ok()) return status;
  return ids;
}

absl::Status TextEncoder::Advance(bool is_final, std::vector<int32_t>* ids) {
  // An added token that begins later may be incomplete.
  const size_t undecided =
      is_final || added_tokens_.empty() ? 0 : added_tokens_.max_size_bytes() - 1;
  const size_t decided = raw_.size() - std::min(raw_.size(), undecided);
  size_t at = 0;
  absl::Status status;
  while (status.ok() && (at < decided || is_final)) {
    const AddedTokens::Match match = added_tokens_.Find(raw_, at, decided);
    const bool has_match = match.size_bytes > 0;
    const size_t end = has_match ? match.begin : std::max(at, decided);
    absl::StatusOr<size_t> taken =
        EncodeBetween(absl::string_view(raw_).substr(at, end - at), has_match || is_final, ids);
    status = taken.status();
    if (!status.ok()) break;
    at += *taken;
    if (!has_match) break;
    ids->push_back(match.id);
    at += match.size_bytes;
  }
  raw_.erase(0, at);
  if (status.ok() && std::max(raw_.size(), text_.size()) > kMaxPretokenBytes + undecided) {
    status = absl::InvalidArgumentError(
        absl::StrCat("text: has no place to cut for more than ", kMaxPretokenBytes, " bytes"));
  }
  if (!status.ok()) {
    raw_.clear();
    text_.clear();
  }
  return status;
}

absl::StatusOr<size_t> TextEncoder::EncodeBetween(absl::string_view raw, bool is_final,
                                                  std::vector<int32_t>* ids) {
  absl::Status status;
  if (tokenizer_.normalizes_nfc()) {
    if (!is_final) raw = raw.substr(0, LastNfcBoundary(raw));
    status = AppendNfc(raw, &text_);
  } else {
    absl::StrAppend(&text_, raw);
  }
  if (status.ok()) status = EncodePretokens(is_final, ids);
  if (!status.ok()) return status;
  return raw.size();
}

absl::Status TextEncoder::EncodePretokens(bool is_final, std::vector<int32_t>* ids) {
  reader_.Reset(text_, is_final);
  absl::string_view pretoken;
  while (true) {
    absl::StatusOr<bool> more = reader_.Next(&pretoken);
    if (!more.ok()) return more.status();
    if (!*more) break;
    EncodePretoken(pretoken, ids);
  }
  text_.erase(0, reader_.at());
  return absl::OkStatus();
}

void TextEncoder::EncodePretoken(absl::string_view pretoken, std::vector<int32_t>* ids) {
  if (pretoken.size() > kMaxCachedBytes) {
    return tokenizer_.encoding().Encode(pretoken, scratch_, ids);
  }
  const auto cached = cache_.find(pretoken);
  if (cached != cache_.end()) {
    const auto first = cached_ids_.begin() + cached->second.first;
    ids->insert(ids->end(), first, first + cached->second.second);
    return;
  }
  if (cache_.size() == kMaxCachedPretokens) {
    cache_.clear();
    cached_ids_.clear();
  }
  const size_t begin = ids->size();
  tokenizer_.encoding().Encode(pretoken, scratch_, ids);
  cache_.emplace(std::string(pretoken), std::pair(static_cast<int32_t>(cached_ids_.size()),
                                                  static_cast<int32_t>(ids->size() - begin)));
  cached_ids_.insert(cached_ids_.end(), ids->begin() + static_cast<int64_t>(begin), ids->end());
}

}  // namespace tessera
