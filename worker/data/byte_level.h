// The alphabet in which vocabularies of byte-level tokenizers are written: every byte as one
// printable character (bytes_to_unicode of openai/gpt-2, src/encoder.py).
#ifndef TESSERA_WORKER_DATA_BYTE_LEVEL_H_
#define TESSERA_WORKER_DATA_BYTE_LEVEL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// The bytes a token of a vocabulary stands for; nothing if a character is not of the alphabet.
std::optional<std::string> BytesOfToken(absl::string_view token);

// The token that stands for the bytes, in UTF-8.
std::string TokenOfBytes(absl::string_view bytes);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_BYTE_LEVEL_H_
