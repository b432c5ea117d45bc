// generate: text from a job's weights or a folder's, as it comes.
#include <stdio.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/jobs_client.h"
#include "cli/output.h"

namespace tessera {
namespace {

absl::Status AppendIds(const std::string& text, const std::string& flag,
                       google::protobuf::RepeatedField<int32_t>& ids) {
  for (absl::string_view part : absl::StrSplit(text, absl::ByAnyChar(", "), absl::SkipEmpty())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": ", part, ": must be token ids with commas between them"));
    }
    ids.Add(id);
  }
  return absl::OkStatus();
}

// Far above what a model's context holds, and below what a call may carry.
constexpr size_t kMaxPromptBytes = 8 << 20;

absl::Status ReadPrompt(const std::string& path, std::string& text) {
  const bool is_stdin = path == "-";
  FILE* file = is_stdin ? stdin : fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat("--prompt-file: ", path, ": ", strerror(errno)));
  }
  text.resize(kMaxPromptBytes + 1);
  text.resize(fread(text.data(), 1, text.size(), file));
  const int error = ferror(file) != 0 ? errno : 0;
  if (!is_stdin) fclose(file);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--prompt-file: ", path, ": ", strerror(error)));
  }
  if (text.size() > kMaxPromptBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prompt-file: ", path, ": must be at most ", kMaxPromptBytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status SetPrompt(const GenerateOptions& options, v1::GenerateRequest& request) {
  const int given =
      options.prompt.has_value() + options.prompt_file.has_value() + options.tokens.has_value();
  if (given != 1) {
    return absl::InvalidArgumentError("give one of --prompt, --prompt-file and --tokens");
  }
  if (options.prompt) request.set_text(*options.prompt);
  if (options.tokens) {
    return AppendIds(*options.tokens, "--tokens", *request.mutable_tokens()->mutable_ids());
  }
  if (options.prompt_file) {
    return ReadPrompt(*options.prompt_file, *request.mutable_text());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::GenerateRequest> MakeRequest(const GenerateOptions& options) {
  v1::GenerateRequest request;
  if (options.name.empty() == options.path.empty()) {
    return absl::InvalidArgumentError("give a job or --path, one of them");
  }
  if (options.path.empty()) {
    request.set_training_job(FullJobName(options.name));
  } else {
    request.set_path(options.path);
  }
  absl::Status status = SetPrompt(options, request);
  if (status.ok()) {
    status = AppendIds(options.stop_tokens, "--stop-tokens", *request.mutable_stop_tokens());
  }
  if (!status.ok()) return status;
  request.set_tokenizer(options.tokenizer);
  if (options.max_new_tokens) request.set_max_new_tokens(*options.max_new_tokens);
  if (options.temperature) request.set_temperature(*options.temperature);
  if (options.top_p) request.set_top_p(*options.top_p);
  request.set_top_k(options.top_k);
  uint64_t seed = 0;
  if (!options.seed.empty() && !absl::SimpleAtoi(options.seed, &seed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seed: ", options.seed, ": must be 0 .. 18446744073709551615"));
  }
  request.set_seed(seed);
  if (!options.precision.empty()) {
    v1::Precision precision;
    if (!v1::Precision_Parse(absl::StrCat("PRECISION_", absl::AsciiStrToUpper(options.precision)),
                             &precision)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--precision: ", options.precision, ": must be fp32, bf16 or fp16"));
    }
    request.set_precision(precision);
  }
  return request;
}

// Prints pieces as they come.
class TextPrinter {
 public:
  TextPrinter(const CommandContext& context, const v1::GenerateRequest& request)
      : json_(context.output == OutputFormat::kJson), request_(request) {}

  void Print(const v1::GenerateResponse& response) {
    if (response.has_step()) {
      fprintf(stderr, "%s after step %lld, on %s\n", request_.training_job().c_str(),
              static_cast<long long>(response.step()), response.worker().c_str());
    }
    if (json_) {
      fputs(ToJsonLine(response).c_str(), stdout);
    } else if (!response.text().empty()) {
      fwrite(response.text().data(), 1, response.text().size(), stdout);
      line_is_open_ = response.text().back() != '\n';
    } else if (response.tokens_size() > 0 && !has_text_) {
      printf("%s%s", line_is_open_ ? " " : "", absl::StrJoin(response.tokens(), " ").c_str());
      line_is_open_ = true;
    }
    has_text_ |= !response.text().empty();
    fflush(stdout);
  }
  void Finish() const {
    if (line_is_open_) fputc('\n', stdout);
  }

 private:
  const bool json_;
  const v1::GenerateRequest& request_;
  bool has_text_ = false;  // so that tokens without text are not printed as ids
  bool line_is_open_ = false;
};

}  // namespace

int RunGenerate(const CommandContext& context, const GenerateOptions& options) {
  auto fail = [&](const absl::Status& status) {
    fputs(ErrorText(status, context.connection.endpoint).c_str(), stderr);
    return ExitCodeOf(status);
  };
  if (context.output == OutputFormat::kYaml || context.output == OutputFormat::kName) {
    return fail(absl::InvalidArgumentError("-o: generate prints text, or json: one object a line"));
  }
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest(options);
  if (!request.ok()) return fail(request.status());
  absl::StatusOr<std::unique_ptr<JobsClient>> client = JobsClient::Create(context);
  if (!client.ok()) return fail(client.status());
  TextPrinter printer(context, *request);
  const absl::Status status = (*client)->Generate(
      *request, [&](const v1::GenerateResponse& response) { printer.Print(response); });
  printer.Finish();
  if (status.ok()) return kCliOk;
  if (absl::IsCancelled(status)) {
    fputs("interrupted\n", stderr);
    return kCliInterrupted;
  }
  return fail(status);
}

}  // namespace tessera
