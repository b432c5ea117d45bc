// tokenizer.json of huggingface/tokenizers, as far as it describes a byte-level BPE.
#ifndef TESSERA_WORKER_DATA_TOKENIZER_JSON_H_
#define TESSERA_WORKER_DATA_TOKENIZER_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/tokenizer.h"

namespace tessera {

// `config` is tokenizer_config.json, which names the end of text ("eos_token"); empty without one,
// and then the end of text is <|endoftext|> or <|end_of_text|> if there is such a token.
//
// Of the post-processor and the decoder only the types are looked at: what they add is added to
// whole inputs of a model, which is not done here. INVALID_ARGUMENT for what is not well-formed and
// UNIMPLEMENTED for what would change ids and is not known, both with the key's path.
absl::StatusOr<TokenizerDefinition> ParseTokenizerJson(absl::string_view json,
                                                       absl::string_view config);

// GPT-2's two files: encoder.json or vocab.json, and vocab.bpe or merges.txt. The end of text is
// <|endoftext|> if it is in the vocabulary; as text it is never recognised, as in GPT-2's own code.
absl::StatusOr<TokenizerDefinition> ParseGpt2Tokenizer(absl::string_view vocabulary,
                                                       absl::string_view merges);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKENIZER_JSON_H_
