// tessera-tokenize: turns a text file into token files. `tessera tokenize` runs it.
#include <stdio.h>

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/daemon/process.h"
#include "proto/daemon/version.h"
#include "worker/data/tokenize.h"

ABSL_FLAG(
    std::string, tokenizer, "",
    "tokenizer.json, or a folder with it, with vocab.json and merges.txt, or with encoder.json "
    "and vocab.bpe. Required.");
ABSL_FLAG(std::string, input, "", "Text; or lines of JSON, if it ends in .jsonl. Required.");
ABSL_FLAG(std::string, field, "text", "Field of each line's object that holds the text (.jsonl).");
ABSL_FLAG(std::string, output, "", "Token file to write. Required.");
ABSL_FLAG(std::string, format, "",
          "nanogpt (uint16, no header) or llmc (header; uint16 or uint32). Required.");
ABSL_FLAG(bool, append_eot, false,
          "Write the end-of-text token after each document: each line of JSON, or the whole text.");
ABSL_FLAG(double, split, 0,
          "Share of the input, above 0 and below 1, that goes to OUTPUT_train; the rest goes to "
          "OUTPUT_val. Default: one file.");
ABSL_FLAG(std::string, special, "text",
          "Special tokens that the input spells out: text (they are text) or match (they are "
          "tokens).");

namespace tessera {
namespace {

// As the exit codes of tessera.
constexpr int kExitFailed = 1;
constexpr int kExitPrecondition = 3;
constexpr int kExitUnavailable = 4;
constexpr int kExitPermission = 5;

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitPrecondition;
    case absl::StatusCode::kUnavailable:
      return kExitUnavailable;
    case absl::StatusCode::kPermissionDenied:
      return kExitPermission;
    default:
      return kExitFailed;
  }
}

int Fail(const absl::Status& status) {
  fprintf(stderr, "error: %s: %s\n", absl::StatusCodeToString(status.code()).c_str(),
          std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

absl::StatusOr<TokenizeOptions> OptionsOfFlags() {
  TokenizeOptions options;
  options.tokenizer = absl::GetFlag(FLAGS_tokenizer);
  options.input = absl::GetFlag(FLAGS_input);
  options.output = absl::GetFlag(FLAGS_output);
  if (options.tokenizer.empty() || options.input.empty() || options.output.empty()) {
    return absl::InvalidArgumentError("--tokenizer, --input and --output are required");
  }
  options.input_format.json_lines = absl::EndsWith(options.input, ".jsonl");
  options.input_format.text_field = absl::GetFlag(FLAGS_field);
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format == "nanogpt") {
    options.format = v1::DATA_FORMAT_NANOGPT;
  } else if (format == "llmc") {
    options.format = v1::DATA_FORMAT_LLMC;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: \"", format, "\": must be nanogpt or llmc"));
  }
  const std::string special = absl::GetFlag(FLAGS_special);
  if (special != "text" && special != "match") {
    return absl::InvalidArgumentError(
        absl::StrCat("--special: \"", special, "\": must be text or match"));
  }
  if (special == "match") options.special = SpecialTokens::kRecognised;
  options.append_end_of_text = absl::GetFlag(FLAGS_append_eot);
  if (absl::GetFlag(FLAGS_split) != 0) options.split = absl::GetFlag(FLAGS_split);
  return options;
}

int Main() {
  absl::StatusOr<TokenizeOptions> options = OptionsOfFlags();
  if (!options.ok()) return Fail(options.status());
  const absl::Time begin = absl::Now();
  absl::Time shown = begin;
  options->progress = [&shown](int64_t tokens) {
    const absl::Time now = absl::Now();
    if (now - shown < absl::Seconds(1)) return;
    shown = now;
    fprintf(stderr, "tokenize: %.1f million tokens\n", static_cast<double>(tokens) / 1e6);
  };
  absl::StatusOr<TokenizeResult> result = TokenizeFile(*options);
  if (!result.ok()) return Fail(result.status());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  std::string files;
  for (const TokenizeResult::File& file : result->files) {
    absl::StrAppend(&files, files.empty() ? "" : ", ", file.path, " ", file.num_tokens, " tokens");
  }
  printf("%s: %lld bytes in %.1f s\n", files.c_str(), static_cast<long long>(result->input_bytes),
         seconds);
  return fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "turns a text file into a token file.\n"
      "tessera tokenize --tokenizer=DIR_OR_FILE --input=FILE --output=FILE "
      "--format=nanogpt|llmc [--field=text] [--append-eot] [--split=0.9] [--special=text|match]");
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "tokenize_main.cc");
  };
  usage.version_string = [] { return absl::StrCat("tessera-tokenize ", tessera::kVersion, "\n"); };
  absl::SetFlagsUsageConfig(usage);
  std::vector<std::string> storage;
  std::vector<char*> arguments = tessera::NormalizeFlags(argc, argv, storage);
  const std::vector<char*> rest =
      absl::ParseCommandLine(static_cast<int>(storage.size()), arguments.data());
  if (rest.size() > 1) {
    fprintf(stderr, "error: INVALID_ARGUMENT: \"%s\": not a flag; --help shows the usage\n",
            rest[1]);
    return tessera::kExitUsage;
  }
  return tessera::Main();
}
