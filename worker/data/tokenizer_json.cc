#include "worker/data/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
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
#include "worker/data/strict_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using AddedToken = TokenizerDefinition::AddedToken;

constexpr absl::string_view kEndsOfText[] = {"<|endoftext|>", "<|end_of_text|>"};

AddedToken ReadAddedToken(const Json& value, std::string path, bool has_normalizer,
                          absl::Status* status) {
  JsonObjectReader reader(value, std::move(path), status);
  AddedToken token;
  token.content = reader.String("content");
  token.id = reader.Id("id");
  token.special = reader.Bool("special", false);
  for (const char* key : {"single_word", "lstrip", "rstrip"}) reader.OnlyOneOf(key, {false});
  if (reader.Bool("normalized", false) && has_normalizer) {
    reader.Unsupported("normalized", "must be false where there is a normalizer");
  }
  reader.NoOtherKeys();
  return token;
}

bool ReadsNfc(const Json& value, std::string path, absl::Status* status) {
  JsonObjectReader reader(value, std::move(path), status);
  const std::string type = reader.String("type");
  bool nfc = type == "NFC";
  if (type == "Sequence") {
    const Json* parts = reader.Require("normalizers");
    if (parts != nullptr && !parts->is_array()) reader.Invalid("normalizers", "must be an array");
    if (parts != nullptr && parts->is_array()) {
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
  reader.OnlyOneOf("behavior", {"Isolated"});
  reader.OnlyOneOf("invert", {false});
  const Json* pattern = reader.Require("pattern");
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

void ReadPretokenizer(const Json& value, std::string path, absl::Status* status,
                      Pretokenizers* parts) {
  JsonObjectReader reader(value, std::move(path), status);
  const std::string type = reader.String("type");
  if (parts->byte_level) {
    reader.Unsupported("type", "nothing may follow ByteLevel");
  } else if (type == "Sequence") {
    const Json* chain = reader.Require("pretokenizers");
    if (chain != nullptr && !chain->is_array()) reader.Invalid("pretokenizers", "must be an array");
    if (chain == nullptr || !chain->is_array()) return;
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
void CheckPostProcessor(const Json& value, std::string path, absl::Status* status) {
  JsonObjectReader reader(value, std::move(path), status);
  const std::string type = reader.String("type");
  if (type == "Sequence") {
    const Json* parts = reader.Require("processors");
    if (parts == nullptr || !parts->is_array()) {
      return reader.Invalid("processors", "must be an array");
    }
    for (size_t i = 0; i < parts->size() && status->ok(); ++i) {
      CheckPostProcessor((*parts)[i], absl::StrCat(reader.PathOf("processors"), "[", i, "]"),
                         status);
    }
  } else if (type != "ByteLevel" && type != "TemplateProcessing") {
    reader.Unsupported("type", "must be ByteLevel, TemplateProcessing or a Sequence of them");
  }
}

// Contents in UTF-8 -> ids; a token that is also an added one need not be of the byte alphabet.
void ReadVocabulary(const Json& value, absl::string_view path,
                    const std::vector<AddedToken>& added_tokens, absl::Status* status,
                    BytePairEncoding::TokenIds* ids) {
  if (!value.is_object()) {
    if (status->ok()) *status = InvalidField(path, ShowJson(value), "must be an object");
    return;
  }
  absl::flat_hash_map<absl::string_view, int32_t> added;
  for (const AddedToken& token : added_tokens) added.emplace(token.content, token.id);
  ids->reserve(value.size());
  for (const auto& item : value.items()) {
    if (!status->ok()) return;
    const std::string token_path = absl::StrCat(path, "[\"", item.key(), "\"]");
    const int32_t id = IdOrNegative(item.value());
    if (id < 0) {
      *status = InvalidField(token_path, ShowJson(item.value()),
                             "must be a whole number, 0 .. 2147483647");
      return;
    }
    const auto same = added.find(item.key());
    if (same != added.end() && same->second != id) {
      *status = InvalidField(token_path, absl::StrCat(id),
                             absl::StrCat("its added token has id ", same->second));
      return;
    }
    std::optional<std::string> bytes = BytesOfToken(item.key());
    if (!bytes.has_value() && same != added.end()) continue;
    if (!bytes.has_value() || bytes->empty()) {
      *status = InvalidField(token_path, absl::StrCat(id),
                             "must be characters that stand for bytes, as in GPT-2's vocabulary");
      return;
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

void ReadMerges(JsonObjectReader& model, absl::Status* status, BytePairEncoding::Merges* merges) {
  const Json* list = model.Require("merges");
  if (list == nullptr) return;
  if (!list->is_array()) return model.Invalid("merges", "must be an array");
  merges->reserve(list->size());
  for (size_t i = 0; i < list->size() && status->ok(); ++i) {
    const Json& item = (*list)[i];
    std::optional<std::pair<std::string, std::string>> merge;
    if (item.is_string()) {
      merge = ParseMerge(item.get_ref<const std::string&>());
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merge =
          ParseMerge(item[0].get_ref<const std::string&>(), item[1].get_ref<const std::string&>());
    }
    if (!merge.has_value()) {
      *status = InvalidField(absl::StrCat(model.PathOf("merges"), "[", i, "]"), ShowJson(item),
                             "must be two tokens, \"a b\" or [\"a\", \"b\"]");
      return;
    }
    merges->push_back(*std::move(merge));
  }
}

void ReadModel(const Json& value, absl::Status* status, TokenizerDefinition* definition) {
  JsonObjectReader model(value, "model", status);
  model.OnlyOneOf("type", {"BPE"});
  model.OnlyOneOf("dropout", {0.0});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    model.OnlyOneOf(key, {""});
  }
  model.OnlyOneOf("byte_fallback", {false});
  // Every byte has a token, so that nothing is unknown.
  model.Find("unk_token");
  model.Find("fuse_unk");
  definition->whole_tokens_first = model.Bool("ignore_merges", false);
  if (const Json* vocabulary = model.Require("vocab"); vocabulary != nullptr) {
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
  absl::StatusOr<Json> root = ParseStrictJson(config);
  if (!root.ok()) return root.status();
  absl::Status status;
  JsonObjectReader reader(*root, "", &status);
  reader.OnlyOneOf("add_prefix_space", {false});
  const Json* token = reader.Find("eos_token");
  std::string content;
  if (token != nullptr && token->is_object()) {
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
  absl::StatusOr<Json> root = ParseStrictJson(json);
  if (!root.ok()) return root.status();
  TokenizerDefinition definition;
  absl::Status status;
  JsonObjectReader reader(*root, "", &status);
  reader.OnlyOneOf("version", {"1.0"});
  for (const char* key : {"truncation", "padding"}) reader.OnlyOneOf(key, {});
  if (const Json* normalizer = reader.Find("normalizer"); normalizer != nullptr) {
    definition.normalize_nfc = ReadsNfc(*normalizer, "normalizer", &status);
  }
  if (const Json* added = reader.Find("added_tokens"); added != nullptr) {
    if (!added->is_array()) reader.Invalid("added_tokens", "must be an array");
    for (size_t i = 0; added->is_array() && i < added->size() && status.ok(); ++i) {
      definition.added_tokens.push_back(ReadAddedToken(
          (*added)[i], absl::StrCat("added_tokens[", i, "]"), definition.normalize_nfc, &status));
    }
  }
  Pretokenizers pretokenizers;
  if (const Json* value = reader.Require("pre_tokenizer"); value != nullptr) {
    ReadPretokenizer(*value, "pre_tokenizer", &status, &pretokenizers);
    if (!pretokenizers.byte_level) reader.Unsupported("pre_tokenizer", "must end with ByteLevel");
  }
  definition.pattern = pretokenizers.pattern.value_or(SplitPattern::kGpt2);
  definition.digits = pretokenizers.digits;
  if (const Json* value = reader.Find("post_processor"); value != nullptr) {
    CheckPostProcessor(*value, "post_processor", &status);
  }
  if (const Json* value = reader.Find("decoder"); value != nullptr) {
    JsonObjectReader(*value, "decoder", &status).OnlyOneOf("type", {"ByteLevel"});
  }
  if (const Json* model = reader.Require("model"); model != nullptr) {
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
  absl::StatusOr<Json> root = ParseStrictJson(vocabulary);
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
