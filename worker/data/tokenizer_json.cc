#include "worker/data/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/rpc/field_error.h"
#include "worker/data/byte_level.h"
#include "worker/data/json_reader.h"

namespace tessera {
namespace {

using AddedToken = TokenizerDefinition::AddedToken;

constexpr absl::string_view kEndsOfText[] = {"<|endoftext|>", "<|end_of_text|>"};

AddedToken ReadAddedToken(const JsonValue& value, std::string path, bool has_normalizer,
                          absl::Status* status) {
  JsonObjectReader reader(value, std::move(path), status);
  AddedToken token;
  token.content = reader.String("content");
  token.id = reader.Id("id");
  token.special = reader.Bool("special", false);
  for (const char* key : {"single_word", "lstrip", "rstrip"}) reader.AbsentOr(key, {false});
  if (reader.Bool("normalized", false) && has_normalizer) {
    reader.Unsupported("normalized", "must be false where there is a normalizer");
  }
  reader.NoOtherKeys();
  return token;
}

bool ReadsNfc(const JsonValue& value, std::string path, absl::Status* status) {
  JsonObjectReader reader(value, std::move(path), status);
  const std::string type = reader.String("type");
  bool nfc = type == "NFC";
  if (type == "Sequence") {
    if (const auto* parts = reader.Array("normalizers"); parts != nullptr) {
      for (size_t i = 0; i < parts->size() && status->ok(); ++i) {
        const bool part =
            ReadsNfc((*parts)[i], absl::StrCat(reader.PathOf("normalizers"), "[", i, "]"), status);
        nfc = nfc || part;
      }
    }
  } else if (!nfc) {
    reader.Unsupported("type", "must be NFC");
  }
  reader.NoOtherKeys();
  return nfc;
}

// Which parts of a chain of pre-tokenizers were there. ByteLevel is the last.
struct Pretokenizers {
  std::optional<SplitPattern> pattern;
  DigitSplit digits = DigitSplit::kNone;
  bool byte_level = false;
};

void ReadSplit(JsonObjectReader& reader, absl::Status* status, Pretokenizers* parts) {
  reader.AbsentOr("behavior", {"Isolated"});
  reader.AbsentOr("invert", {false});
  const JsonValue* pattern = reader.Require("pattern");
  if (pattern == nullptr) return;
  JsonObjectReader pattern_reader(*pattern, reader.PathOf("pattern"), status);
  const std::string regex = pattern_reader.String("Regex");
  parts->pattern = FindSplitPattern(regex);
  if (!parts->pattern.has_value()) {
    pattern_reader.Unsupported("Regex", "must be the pattern of GPT-2, Llama 3 or Qwen2");
  }
  pattern_reader.NoOtherKeys();
}

void ReadByteLevel(JsonObjectReader& reader, Pretokenizers* parts) {
  parts->byte_level = true;
  if (reader.Bool("add_prefix_space")) reader.Unsupported("add_prefix_space", "must be false");
  reader.Find("trim_offsets");  // of positions in the text, which are not kept
  const bool use_regex = reader.Bool("use_regex", true);
  if (use_regex && parts->pattern.has_value()) {
    reader.Unsupported("use_regex", "must be false after a Split");
  }
  if (use_regex) parts->pattern = SplitPattern::kGpt2;
  if (!parts->pattern.has_value()) {
    reader.Unsupported("use_regex", "must be true unless a Split comes before");
  }
}

void ReadPretokenizer(const JsonValue& value, std::string path, absl::Status* status,
                      Pretokenizers* parts) {
  JsonObjectReader reader(value, std::move(path), status);
  const std::string type = reader.String("type");
  if (parts->byte_level) {
    reader.Unsupported("type", "nothing may follow ByteLevel");
  } else if (type == "Sequence") {
    const auto* chain = reader.Array("pretokenizers");
    if (chain == nullptr) return;
    for (size_t i = 0; i < chain->size() && status->ok(); ++i) {
      ReadPretokenizer((*chain)[i], absl::StrCat(reader.PathOf("pretokenizers"), "[", i, "]"),
                       status, parts);
    }
  } else if (type == "Digits") {
    if (parts->pattern.has_value() || parts->digits != DigitSplit::kNone) {
      reader.Unsupported("type", "Digits must come first and once");
    }
    parts->digits = reader.Bool("individual_digits") ? DigitSplit::kEach : DigitSplit::kRuns;
  } else if (type == "Split") {
    if (parts->pattern.has_value()) reader.Unsupported("type", "Split must come once");
    ReadSplit(reader, status, parts);
  } else if (type == "ByteLevel") {
    ReadByteLevel(reader, parts);
  } else {
    reader.Unsupported("type", "must be ByteLevel, Split, Digits or a Sequence of them");
  }
  reader.NoOtherKeys();
}

// Only looks at the types: see the header.
void CheckPostProcessor(const JsonValue& value, std::string path, absl::Status* status) {
  JsonObjectReader reader(value, std::move(path), status);
  const std::string type = reader.String("type");
  if (type == "Sequence") {
    const auto* parts = reader.Array("processors");
    if (parts == nullptr) return;
    for (size_t i = 0; i < parts->size() && status->ok(); ++i) {
      CheckPostProcessor((*parts)[i], absl::StrCat(reader.PathOf("processors"), "[", i, "]"),
                         status);
    }
  } else if (type != "ByteLevel" && type != "TemplateProcessing") {
    reader.Unsupported("type", "must be ByteLevel, TemplateProcessing or a Sequence of them");
  }
}

// Contents in UTF-8 -> ids; a token that is also an added one need not be of the byte alphabet.
void ReadVocabulary(const JsonValue& value, absl::string_view path,
                    const std::vector<AddedToken>& added_tokens, absl::Status* status,
                    BytePairEncoding::TokenIds* ids) {
  const auto* members = value.get<JsonValue::Object>();
  if (members == nullptr) {
    if (status->ok()) *status = InvalidField(path, ShowJson(value), "must be an object");
    return;
  }
  absl::flat_hash_map<absl::string_view, int32_t> added;
  for (const AddedToken& token : added_tokens) added.emplace(token.content, token.id);
  ids->reserve(members->size());
  for (const auto& [token, token_value] : *members) {
    if (!status->ok()) return;
    const auto refuse = [&, &token = token](absl::string_view found, absl::string_view rule) {
      *status = InvalidField(absl::StrCat(path, "[", ShowJson({token}), "]"), found, rule);
    };
    const int32_t id = IdOrNegative(token_value);
    if (id < 0) return refuse(ShowJson(token_value), "must be a whole number, 0 .. 2147483647");
    const auto same = added.find(token);
    if (same != added.end() && same->second != id) {
      return refuse(absl::StrCat(id), absl::StrCat("its added token has id ", same->second));
    }
    std::optional<std::string> bytes = BytesOfToken(token);
    if (!bytes.has_value() && same != added.end()) continue;
    if (!bytes.has_value() || bytes->empty()) {
      return refuse(absl::StrCat(id),
                    "must be characters that stand for bytes, as in GPT-2's vocabulary");
    }
    ids->emplace(*std::move(bytes), id);
  }
}

// "a b" -> (a, b) in bytes; nothing if it is not of that form.
std::optional<std::pair<std::string, std::string>> ParseMerge(absl::string_view left,
                                                              absl::string_view right) {
  std::optional<std::string> left_bytes = BytesOfToken(left);
  std::optional<std::string> right_bytes = BytesOfToken(right);
  if (!left_bytes.has_value() || !right_bytes.has_value() || left_bytes->empty() ||
      right_bytes->empty()) {
    return std::nullopt;
  }
  return std::pair(*std::move(left_bytes), *std::move(right_bytes));
}

std::optional<std::pair<std::string, std::string>> ParseMerge(absl::string_view line) {
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos) return std::nullopt;
  return ParseMerge(line.substr(0, space), line.substr(space + 1));
}

// "a b" or ["a", "b"]; nothing if it is not of either form.
std::optional<std::pair<std::string, std::string>> ParseMerge(const JsonValue& item) {
  if (const auto* line = item.get<std::string>()) return ParseMerge(absl::string_view(*line));
  const auto* pair = item.get<JsonValue::Array>();
  if (pair == nullptr || pair->size() != 2) return std::nullopt;
  const auto* left = (*pair)[0].get<std::string>();
  const auto* right = (*pair)[1].get<std::string>();
  if (left == nullptr || right == nullptr) return std::nullopt;
  return ParseMerge(*left, *right);
}

void ReadMerges(JsonObjectReader& model, absl::Status* status, BytePairEncoding::Merges* merges) {
  const auto* list = model.Array("merges");
  if (list == nullptr) return;
  merges->reserve(list->size());
  for (size_t i = 0; i < list->size() && status->ok(); ++i) {
    const JsonValue& item = (*list)[i];
    std::optional<std::pair<std::string, std::string>> merge = ParseMerge(item);
    if (!merge.has_value()) {
      *status = InvalidField(absl::StrCat(model.PathOf("merges"), "[", i, "]"), ShowJson(item),
                             "must be two tokens, \"a b\" or [\"a\", \"b\"]");
      return;
    }
    merges->push_back(*std::move(merge));
  }
}

void ReadModel(const JsonValue& value, absl::Status* status, TokenizerDefinition* definition) {
  JsonObjectReader model(value, "model", status);
  model.AbsentOr("type", {"BPE"});
  model.AbsentOr("dropout", {0.0});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    model.AbsentOr(key, {""});
  }
  model.AbsentOr("byte_fallback", {false});
  // Every byte has a token, so that nothing is unknown.
  model.Find("unk_token");
  model.Find("fuse_unk");
  definition->whole_tokens_first = model.Bool("ignore_merges", false);
  if (const JsonValue* vocabulary = model.Require("vocab"); vocabulary != nullptr) {
    ReadVocabulary(*vocabulary, "model.vocab", definition->added_tokens, status,
                   &definition->vocabulary);
  }
  ReadMerges(model, status, &definition->merges);
  model.NoOtherKeys();
}

bool HasToken(const TokenizerDefinition& definition, absl::string_view token) {
  if (definition.vocabulary.contains(token)) return true;
  return std::any_of(definition.added_tokens.begin(), definition.added_tokens.end(),
                     [&](const AddedToken& added) { return added.content == token; });
}

std::string DefaultEndOfText(const TokenizerDefinition& definition) {
  for (const absl::string_view token : kEndsOfText) {
    if (HasToken(definition, token)) return std::string(token);
  }
  return "";
}

// "eos_token": a string, an object with "content", or null.
absl::StatusOr<std::string> ReadEndOfText(absl::string_view config,
                                          const TokenizerDefinition& definition) {
  if (config.empty()) return DefaultEndOfText(definition);
  absl::StatusOr<JsonValue> root = ParseJsonValue(config, kDataJsonLimits);
  if (!root.ok()) return root.status();
  absl::Status status;
  JsonObjectReader reader(*root, "", &status);
  reader.AbsentOr("add_prefix_space", {false});
  const JsonValue* token = reader.Find("eos_token");
  std::string content;
  if (token != nullptr && token->get<JsonValue::Object>() != nullptr) {
    content = JsonObjectReader(*token, "eos_token", &status).String("content");
  } else if (token != nullptr) {
    content = reader.String("eos_token");
  }
  if (!content.empty() && !HasToken(definition, content)) {
    reader.Invalid("eos_token", "must be a token of the vocabulary");
  }
  if (!status.ok()) return status;
  return content;
}

}  // namespace

absl::StatusOr<TokenizerDefinition> ParseTokenizerJson(absl::string_view json,
                                                       absl::string_view config) {
  absl::StatusOr<JsonValue> root = ParseJsonValue(json, kDataJsonLimits);
  if (!root.ok()) return root.status();
  TokenizerDefinition definition;
  absl::Status status;
  JsonObjectReader reader(*root, "", &status);
  reader.AbsentOr("version", {"1.0"});
  for (const char* key : {"truncation", "padding"}) reader.Absent(key);
  if (const JsonValue* normalizer = reader.Find("normalizer"); normalizer != nullptr) {
    definition.normalize_nfc = ReadsNfc(*normalizer, "normalizer", &status);
  }
  if (reader.Find("added_tokens") != nullptr) {
    const auto* added = reader.Array("added_tokens");
    for (size_t i = 0; added != nullptr && i < added->size() && status.ok(); ++i) {
      definition.added_tokens.push_back(ReadAddedToken(
          (*added)[i], absl::StrCat("added_tokens[", i, "]"), definition.normalize_nfc, &status));
    }
  }
  Pretokenizers pretokenizers;
  if (const JsonValue* value = reader.Require("pre_tokenizer"); value != nullptr) {
    ReadPretokenizer(*value, "pre_tokenizer", &status, &pretokenizers);
    if (!pretokenizers.byte_level) reader.Unsupported("pre_tokenizer", "must end with ByteLevel");
  }
  definition.pattern = pretokenizers.pattern.value_or(SplitPattern::kGpt2);
  definition.digits = pretokenizers.digits;
  if (const JsonValue* value = reader.Find("post_processor"); value != nullptr) {
    CheckPostProcessor(*value, "post_processor", &status);
  }
  if (const JsonValue* value = reader.Find("decoder"); value != nullptr) {
    JsonObjectReader(*value, "decoder", &status).AbsentOr("type", {"ByteLevel"});
  }
  if (const JsonValue* model = reader.Require("model"); model != nullptr) {
    ReadModel(*model, &status, &definition);
  }
  reader.NoOtherKeys();
  if (!status.ok()) return status;
  absl::StatusOr<std::string> end_of_text = ReadEndOfText(config, definition);
  if (!end_of_text.ok()) {
    return FieldError(end_of_text.status().code(), "tokenizer_config.json", "",
                      end_of_text.status().message());
  }
  definition.end_of_text = *std::move(end_of_text);
  return definition;
}

absl::StatusOr<TokenizerDefinition> ParseGpt2Tokenizer(absl::string_view vocabulary,
                                                       absl::string_view merges) {
  absl::StatusOr<JsonValue> root = ParseJsonValue(vocabulary, kDataJsonLimits);
  if (!root.ok()) return root.status();
  TokenizerDefinition definition;
  absl::Status status;
  ReadVocabulary(*root, "vocabulary", {}, &status, &definition.vocabulary);
  if (!status.ok()) return status;
  int line_number = 0;
  while (!merges.empty()) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    const absl::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (++line_number == 1 && absl::StartsWith(line, "#version")) continue;
    std::optional<std::pair<std::string, std::string>> merge = ParseMerge(line);
    if (!merge.has_value()) {
      return InvalidField(absl::StrCat("merges, line ", line_number),
                          absl::CHexEscape(line.substr(0, 80)),
                          "must be two tokens with a space between");
    }
    definition.merges.push_back(*std::move(merge));
  }
  definition.end_of_text = DefaultEndOfText(definition);
  return definition;
}

}  // namespace tessera
