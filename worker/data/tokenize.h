// Turns a text file into token files: what tessera-tokenize does.
#ifndef TESSERA_WORKER_DATA_TOKENIZE_H_
#define TESSERA_WORKER_DATA_TOKENIZE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/tessera/v1/spec.pb.h"
#include "worker/data/documents.h"
#include "worker/data/tokenizer.h"

namespace tessera {

struct TokenizeOptions {
  std::string tokenizer;  // as for FindTokenizerFiles
  std::string input;
  DocumentFormat input_format;
  std::string output;
  v1::DataFormat format = v1::DATA_FORMAT_UNSPECIFIED;  // of the output: nanogpt or llmc
  SpecialTokens special = SpecialTokens::kAsText;
  bool append_end_of_text = false;  // after each document; of a text, after each part of it
  // Share of the input that goes to OUTPUT_train.EXT, by characters (rounded down, as nanoGPT's
  // prepare.py does) or by lines of JSON; the rest goes to OUTPUT_val.EXT. 0 < share < 1.
  std::optional<double> split;
  // Called after each block with the tokens so far.
  std::function<void(int64_t)> progress;
};

struct TokenizeResult {
  struct File {
    std::string path;
    int64_t num_tokens = 0;
  };
  std::vector<File> files;
  int64_t input_bytes = 0;
};

// The input is mapped and goes through in blocks; besides, memory is used for the tokenizer, for
// one line of JSON and for what TextEncoder holds back. The files get their names when all are
// complete. INVALID_ARGUMENT under the option's flag; errors of LoadTokenizer, EncodeDocuments and
// TokenFileWriter.
absl::StatusOr<TokenizeResult> TokenizeFile(const TokenizeOptions& options);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKENIZE_H_
