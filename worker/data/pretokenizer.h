// Cuts text into pre-tokens, across which byte-pair merges never go.
#ifndef TESSERA_WORKER_DATA_PRETOKENIZER_H_
#define TESSERA_WORKER_DATA_PRETOKENIZER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace tessera {

// Patterns under which every character belongs to some pre-token, by the family that brought them.
enum class SplitPattern { kGpt2, kLlama3, kQwen2 };

// Characters of class N cut off before the pattern is applied ("Digits" in tokenizer.json).
enum class DigitSplit { kNone, kEach, kRuns };

// The pattern a tokenizer.json writes so; nothing if it is none of the known ones.
std::optional<SplitPattern> FindSplitPattern(absl::string_view regex);
// As tokenizer.json writes it.
absl::string_view RegexOf(SplitPattern pattern);

// Compiled patterns. Immutable, thread-safe.
class Pretokenizer {
 public:
  // INTERNAL if PCRE2 does not compile a pattern (built without UTF).
  static absl::StatusOr<Pretokenizer> Create(SplitPattern pattern, DigitSplit digits);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

 private:
  friend class PretokenReader;
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, FreeCode>;
  static absl::StatusOr<Code> Compile(absl::string_view regex, bool anchored);
  Pretokenizer(Code pattern, Code digits);

  Code pattern_;  // anchored
  Code digits_;   // null without
};

// Reads the pre-tokens of one text after another. For one thread; the pretokenizer outlives it.
//
// A byte that is part of no valid UTF-8 character is a pre-token of its own, and the text before
// and after it is cut as if it ended and began there.
class PretokenReader {
 public:
  explicit PretokenReader(const Pretokenizer& pretokenizer);
  PretokenReader(PretokenReader&&) noexcept;
  ~PretokenReader();

  // Begins a text, which stays where it is while it is read. Unless it is_final, more may follow.
  void Reset(absl::string_view text, bool is_final);

  // The next pre-token. False at the end of the text or, where more may follow, as soon as a cut
  // depends on what follows; then at() is where the undecided rest begins. The cuts are the same
  // however a text is divided, since a match that touched the end of what is there is not used
  // (PCRE2_PARTIAL_HARD). INTERNAL: a limit of PCRE2.
  absl::StatusOr<bool> Next(absl::string_view* pretoken);
  size_t at() const { return at_; }

 private:
  struct FreeMatch {
    void operator()(pcre2_real_match_data_8* match) const;
  };
  // A stretch of the text that is cut on its own. Where it is not final, it may go on after its
  // end.
  struct Stretch {
    size_t end = 0;
    bool is_final = false;
  };
  // Each begins at at_. False: undecided.
  bool FindValidRun();
  absl::StatusOr<bool> FindPiece();

  const Pretokenizer* pretokenizer_;
  std::unique_ptr<pcre2_real_match_data_8, FreeMatch> match_;
  absl::string_view text_;
  bool is_final_ = true;
  size_t at_ = 0;
  Stretch valid_run_;  // of valid UTF-8
  Stretch piece_;      // of the valid run: digits, or what is between them
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PRETOKENIZER_H_
