#include "worker/data/pretokenizer.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "storage/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tessera {
namespace {

// openai/gpt-2, src/encoder.py.
constexpr absl::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// meta-llama/llama3, llama/tokenizer.py.
constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Qwen/Qwen2, tokenizer.json.
constexpr absl::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr SplitPattern kPatterns[] = {SplitPattern::kGpt2, SplitPattern::kLlama3,
                                      SplitPattern::kQwen2};

// The engines these patterns were written for take \s as Unicode's property White_Space. PCRE2's
// has U+180E as well, so it is spelled out.
std::string WithUnicodeSpaces(absl::string_view regex) {
  constexpr absl::string_view kSpaces = R"(\x09-\x0d\x{85}\p{Z})";
  return absl::StrReplaceAll(regex, {{R"([^\s)", absl::StrCat("[^", kSpaces)},
                                     {R"(\s)", absl::StrCat("[", kSpaces, "]")},
                                     {R"(\S)", absl::StrCat("[^", kSpaces, "]")}});
}

std::string ErrorOf(int code) {
  unsigned char text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// The first match at or after begin. On kUndecided the text's end was touched.
enum class Found { kMatch, kNone, kUndecided };
absl::StatusOr<Found> Match(const pcre2_code* code, absl::string_view text, size_t begin,
                            bool is_final, pcre2_match_data* match) {
  const int result =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                  PCRE2_NO_UTF_CHECK | (is_final ? 0 : PCRE2_PARTIAL_HARD), match, nullptr);
  if (result > 0) return Found::kMatch;
  if (result == PCRE2_ERROR_NOMATCH) return Found::kNone;
  if (result == PCRE2_ERROR_PARTIAL) return Found::kUndecided;
  return absl::InternalError(absl::StrCat("pre-token at byte ", begin, ": ", ErrorOf(result)));
}

}  // namespace

absl::string_view RegexOf(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return kGpt2;
    case SplitPattern::kLlama3:
      return kLlama3;
    case SplitPattern::kQwen2:
      return kQwen2;
  }
  return "";
}

std::optional<SplitPattern> FindSplitPattern(absl::string_view regex) {
  for (const SplitPattern pattern : kPatterns) {
    if (RegexOf(pattern) == regex) return pattern;
  }
  return std::nullopt;
}

void Pretokenizer::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Pretokenizer::Code> Pretokenizer::Compile(absl::string_view regex, bool anchored) {
  const std::string translated = WithUnicodeSpaces(regex);
  int error = 0;
  size_t error_at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | (anchored ? PCRE2_ANCHORED : 0), &error,
                          &error_at, nullptr));
  if (code == nullptr) {
    return absl::InternalError(
        absl::StrCat("PCRE2 refuses ", translated, " at ", error_at, ": ", ErrorOf(error)));
  }
  // Without executable memory the interpreter finds the same matches, only slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return code;
}

absl::StatusOr<Pretokenizer> Pretokenizer::Create(SplitPattern pattern, DigitSplit digits) {
  absl::StatusOr<Code> cut = Compile(RegexOf(pattern), true);
  if (!cut.ok()) return cut.status();
  if (digits == DigitSplit::kNone) return Pretokenizer(*std::move(cut), nullptr);
  absl::StatusOr<Code> isolated =
      Compile(digits == DigitSplit::kEach ? R"(\p{N})" : R"(\p{N}+)", false);
  if (!isolated.ok()) return isolated.status();
  return Pretokenizer(*std::move(cut), *std::move(isolated));
}

Pretokenizer::Pretokenizer(Code pattern, Code digits)
    : pattern_(std::move(pattern)), digits_(std::move(digits)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

void PretokenReader::FreeMatch::operator()(pcre2_real_match_data_8* match) const {
  pcre2_match_data_free(match);
}

PretokenReader::PretokenReader(const Pretokenizer& pretokenizer)
    : pretokenizer_(&pretokenizer), match_(pcre2_match_data_create(1, nullptr)) {
  if (match_ == nullptr) throw std::bad_alloc();
}
PretokenReader::PretokenReader(PretokenReader&&) noexcept = default;
PretokenReader::~PretokenReader() = default;

void PretokenReader::Reset(absl::string_view text, bool is_final) {
  text_ = text;
  is_final_ = is_final;
  at_ = 0;
  valid_run_ = {};
  piece_ = {};
}

bool PretokenReader::FindValidRun() {
  const absl::string_view rest = text_.substr(at_);
  const size_t size = ValidUtf8Prefix(rest);
  const bool more_may_follow =
      !is_final_ && (size == rest.size() || FirstUtf8Char(rest.substr(size)).truncated);
  valid_run_ = {at_ + size, !more_may_follow};
  piece_ = {at_, false};
  return size > 0 || !more_may_follow;
}

absl::StatusOr<bool> PretokenReader::FindPiece() {
  piece_ = valid_run_;
  if (pretokenizer_->digits_ == nullptr) return true;
  absl::StatusOr<Found> found = Match(pretokenizer_->digits_.get(), text_.substr(0, valid_run_.end),
                                      at_, valid_run_.is_final, match_.get());
  if (!found.ok()) return found.status();
  const size_t* range = pcre2_get_ovector_pointer(match_.get());
  if (*found == Found::kNone || range[0] == valid_run_.end) return true;
  if (range[0] > at_) {
    piece_ = {range[0], true};
    return true;
  }
  piece_ = {range[1], true};
  return *found == Found::kMatch;
}

absl::StatusOr<bool> PretokenReader::Next(absl::string_view* pretoken) {
  if (at_ == text_.size()) return false;
  if (at_ == valid_run_.end) {
    if (!FindValidRun()) return false;
    if (at_ == valid_run_.end) {  // no valid character begins here
      *pretoken = text_.substr(at_++, 1);
      valid_run_ = piece_ = {at_, true};
      return true;
    }
  }
  if (at_ == piece_.end) {
    absl::StatusOr<bool> decided = FindPiece();
    if (!decided.ok() || !*decided) return decided;
  }
  absl::StatusOr<Found> found = Match(pretokenizer_->pattern_.get(), text_.substr(0, piece_.end),
                                      at_, piece_.is_final, match_.get());
  if (!found.ok()) return found.status();
  if (*found == Found::kUndecided) return false;
  if (*found == Found::kNone) {
    return absl::InternalError(absl::StrCat("no pre-token begins at byte ", at_));
  }
  const size_t end = pcre2_get_ovector_pointer(match_.get())[1];
  *pretoken = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

}  // namespace tessera
