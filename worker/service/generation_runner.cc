#include "worker/service/generation_runner.h"

#include <atomic>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/status_macros.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/status.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/data/data_root.h"
#include "worker/generation/generation_model.h"
#include "worker/generation/text_codec.h"
#include "worker/generation/text_generation.h"
#include "worker/trainer/training_config.h"

namespace tessera {
namespace {

// Instead of a tokenizer's path: every byte is a token.
constexpr char kBytesTokenizer[] = "bytes";

// Tokens that come faster are sent together.
constexpr absl::Duration kSendInterval = absl::Milliseconds(20);

absl::Status UnderPath(const absl::Status& status, const std::string& path) {
  return FieldError(status.code(), "path", path, status.message());
}

}  // namespace

// From request to last piece, on a thread that starts in the constructor; the destructor cancels
// and joins.
class GenerationRunner::Generation {
 public:
  Generation(const GenerationRunner& runner, v1::RunGeneration run)
      : context_(runner.context_),
        jobs_(*runner.jobs_),
        send_(runner.send_),
        run_(std::move(run)),
        thread_([this] { Run(); }) {}
  ~Generation() {
    Cancel();
    thread_.join();
  }

  const std::string& id() const { return run_.generation_id(); }
  void Cancel() { cancelled_ = true; }
  bool ended() const { return ended_; }

 private:
  // The model, and what is known of where its weights come from.
  struct Loaded {
    std::unique_ptr<GenerationModel> model;
    std::optional<int64_t> step;
  };

  const v1::GenerateRequest& request() const { return run_.request(); }
  bool is_of_job() const { return run_.has_spec(); }

  void Run();
  absl::Status Execute();
  absl::Status CheckStop() const;
  absl::StatusOr<std::unique_ptr<WeightReader>> OpenPath() const;
  // Nothing: the prompt is tokens, and there is no tokenizer.
  absl::StatusOr<std::optional<TextCodec>> OpenCodec() const;
  absl::StatusOr<std::vector<int32_t>> PromptTokens(const std::optional<TextCodec>& codec) const;
  absl::StatusOr<Loaded> Load(const WeightReader* weights) const;
  absl::StatusOr<Loaded> LoadOfJob() const;
  absl::Status Generate(GenerationModel& model, const TextGenerationOptions& options,
                        const std::optional<TextCodec>& codec, v1::GenerateResponse first);
  // Sends what has been generated since the last time.
  absl::Status Flush(const std::optional<TextCodec>& codec, v1::GenerateResponse& response,
                     std::vector<int32_t>& tokens) const;

  const WorkerContext& context_;
  JobRunner& jobs_;
  const std::function<void(const v1::WorkerMessage&)>& send_;
  const v1::RunGeneration run_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

void GenerationRunner::Generation::Run() {
  absl::Status status;
  if (context_.gate->Enter()) {
    try {
      status = Execute();
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("host memory is exhausted");
    } catch (const std::exception& error) {  // of a library; own code returns its errors
      status = absl::InternalError(absl::StrCat("exception: ", error.what()));
    }
    context_.gate->Leave();
  } else {
    status = WithReason(absl::UnavailableError(absl::StrCat(
                            context_.worker, ": a training job is taking its memory; try again")),
                        "JOB_COMES_FIRST");
  }
  v1::WorkerMessage message;
  message.mutable_generated()->set_generation_id(id());
  *message.mutable_generated()->mutable_status() = ToProto(status);
  send_(message);
  ended_ = true;
}

absl::Status GenerationRunner::Generation::Execute() {
  // What can be refused without the weights is refused first.
  std::unique_ptr<WeightReader> weights;
  if (!is_of_job()) {
    TESSERA_ASSIGN_OR_RETURN(weights, OpenPath());
  }
  const ModelConfig config =
      is_of_job() ? MakeModelConfig(run_.spec().model()) : weights->config().model;
  TESSERA_ASSIGN_OR_RETURN(const std::optional<TextCodec> codec, OpenCodec());
  TESSERA_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, PromptTokens(codec));
  TESSERA_ASSIGN_OR_RETURN(const TextGenerationOptions options,
                           MakeTextGenerationOptions(request(), std::move(prompt), config));
  TESSERA_ASSIGN_OR_RETURN(const Loaded loaded, is_of_job() ? LoadOfJob() : Load(weights.get()));
  weights.reset();  // its files need not stay mapped
  v1::GenerateResponse first;
  first.set_worker(context_.worker);
  if (loaded.step) first.set_step(*loaded.step);
  return Generate(*loaded.model, options, codec, std::move(first));
}

absl::Status GenerationRunner::Generation::CheckStop() const {
  if (cancelled_) return absl::CancelledError("nobody waits for the text any more");
  if (context_.gate->closed()) {
    return WithReason(absl::UnavailableError(absl::StrCat(
                          context_.worker, ": makes room for a training job; try again")),
                      "JOB_COMES_FIRST");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightReader>> GenerationRunner::Generation::OpenPath() const {
  const std::string& path = request().path();
  TESSERA_ASSIGN_OR_RETURN(const std::string resolved,
                           ResolveInsideRoot(context_.data_root, path, "path"));
  absl::StatusOr<std::unique_ptr<WeightReader>> weights = OpenWeights(resolved);
  if (!weights.ok()) return UnderPath(weights.status(), path);
  return weights;
}

absl::StatusOr<std::optional<TextCodec>> GenerationRunner::Generation::OpenCodec() const {
  const std::string& root = context_.data_root;
  if (request().tokenizer() == kBytesTokenizer) return TextCodec::Bytes();
  if (!request().tokenizer().empty()) {
    return TextCodec::Open(root, request().tokenizer(), "tokenizer");
  }
  if (!is_of_job()) {
    TESSERA_ASSIGN_OR_RETURN(const std::string resolved,
                             ResolveInsideRoot(root, request().path(), "path"));
    std::error_code error;
    // A single file, such as an llm.c checkpoint, says nothing of a tokenizer.
    if (!std::filesystem::is_directory(resolved, error)) return std::nullopt;
    absl::StatusOr<std::optional<TextCodec>> codec = TextCodec::OpenFolder(resolved);
    if (!codec.ok()) return UnderPath(codec.status(), request().path());
    return codec;
  }
  const v1::DataSpec& data = run_.spec().data();
  if (!data.tokenizer().empty()) {
    return TextCodec::Open(root, data.tokenizer(), "spec.data.tokenizer");
  }
  const bool is_text =
      data.format() == v1::DATA_FORMAT_TEXT || data.format() == v1::DATA_FORMAT_JSONL;
  return is_text ? std::optional(TextCodec::Bytes()) : std::nullopt;
}

absl::StatusOr<std::vector<int32_t>> GenerationRunner::Generation::PromptTokens(
    const std::optional<TextCodec>& codec) const {
  if (request().has_tokens()) {
    return std::vector<int32_t>(request().tokens().ids().begin(), request().tokens().ids().end());
  }
  if (!codec) {
    return InvalidField(
        "tokenizer", "",
        absl::StrCat("required with text: ",
                     is_of_job() ? "the job's data are tokens" : "there is none with the weights",
                     "; or give the prompt as tokens"));
  }
  return codec->Encode(request().text());
}

absl::StatusOr<GenerationRunner::Generation::Loaded> GenerationRunner::Generation::Load(
    const WeightReader* weights) const {
  GenerationModelOptions options;
  options.dtype = DTypeOf(is_of_job() ? run_.spec().precision() : request().precision());
  options.reserved_bytes = kReservedBytes + jobs_.momentary_bytes();
  Loaded loaded;
  auto source = [&](absl::string_view name, int64_t begin, absl::Span<float> values) {
    absl::Status status = CheckStop();
    return status.ok() ? weights->ReadParameter(name, begin, values) : status;
  };
  TESSERA_ASSIGN_OR_RETURN(loaded.model, GenerationModel::Create(weights->config().model, options,
                                                                 source, *context_.device));
  return loaded;
}

absl::StatusOr<GenerationRunner::Generation::Loaded> GenerationRunner::Generation::LoadOfJob()
    const {
  Loaded loaded;
  const absl::Status running = jobs_.ReadWeights(
      run_.job_uid(), [this] { return CheckStop(); },
      [&](int64_t step, const Trainer& trainer) -> absl::Status {
        GenerationModelOptions options;
        options.dtype = trainer.dtype();
        options.reserved_bytes = kReservedBytes + jobs_.momentary_bytes();
        auto source = [&](absl::string_view name, int64_t begin, absl::Span<float> values) {
          absl::Status status = CheckStop();
          return status.ok() ? trainer.ReadElements(name, begin, values) : status;
        };
        TESSERA_ASSIGN_OR_RETURN(loaded.model, GenerationModel::Create(trainer.model(), options,
                                                                       source, *context_.device));
        loaded.step = step;
        return absl::OkStatus();
      });
  if (running.ok()) return loaded;
  if (!absl::IsNotFound(running)) return running;
  // It is not running here, or has ended meanwhile.
  absl::StatusOr<std::string> folder = context_.kept_weights->Find(run_.job_uid());
  if (!folder.ok()) {
    return WithReason(absl::Status(folder.status().code(),
                                   absl::StrCat(request().training_job(), ": on ", context_.worker,
                                                ": ", folder.status().message())),
                      "WEIGHTS_NOT_KEPT");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<WeightReader> weights, OpenWeights(*folder));
  TESSERA_ASSIGN_OR_RETURN(loaded, Load(weights.get()));
  loaded.step = run_.spec().steps();
  return loaded;
}

absl::Status GenerationRunner::Generation::Generate(GenerationModel& model,
                                                    const TextGenerationOptions& options,
                                                    const std::optional<TextCodec>& codec,
                                                    v1::GenerateResponse first) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Generator> generator,
                           model.NewGenerator(options.capacity()));
  v1::GenerateResponse response = std::move(first);
  std::vector<int32_t> tokens;
  absl::Time next_send = absl::InfinitePast();
  TESSERA_ASSIGN_OR_RETURN(const v1::FinishReason finished,
                           GenerateText(
                               *generator, options, [this] { return CheckStop(); },
                               [&](int32_t token) -> absl::Status {
                                 tokens.push_back(token);
                                 if (absl::Now() < next_send) return absl::OkStatus();
                                 next_send = absl::Now() + kSendInterval;
                                 return Flush(codec, response, tokens);
                               }));
  response.set_finish_reason(finished);
  return Flush(codec, response, tokens);
}

absl::Status GenerationRunner::Generation::Flush(const std::optional<TextCodec>& codec,
                                                 v1::GenerateResponse& response,
                                                 std::vector<int32_t>& tokens) const {
  if (codec) {
    TESSERA_ASSIGN_OR_RETURN(*response.mutable_text(), codec->Decode(tokens));
  }
  response.mutable_tokens()->Assign(tokens.begin(), tokens.end());
  v1::WorkerMessage message;
  message.mutable_generated()->set_generation_id(id());
  *message.mutable_generated()->mutable_response() = response;
  send_(message);
  response.Clear();
  tokens.clear();
  return absl::OkStatus();
}

GenerationRunner::GenerationRunner(const WorkerContext& context, JobRunner* jobs,
                                   std::function<void(const v1::WorkerMessage&)> send)
    : context_(context), jobs_(jobs), send_(std::move(send)) {}

GenerationRunner::~GenerationRunner() {
  std::list<std::unique_ptr<Generation>> ending;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending.swap(generations_);
  }
  for (const auto& generation : ending) generation->Cancel();
}

void GenerationRunner::RemoveEndedLocked() {
  generations_.remove_if([](const auto& generation) { return generation->ended(); });
}

void GenerationRunner::HandleRun(const v1::RunGeneration& run) {
  std::lock_guard<std::mutex> lock(mutex_);
  RemoveEndedLocked();
  if (generations_.size() < kMaxGenerations) {
    generations_.push_back(std::make_unique<Generation>(*this, run));
    return;
  }
  v1::WorkerMessage message;
  message.mutable_generated()->set_generation_id(run.generation_id());
  *message.mutable_generated()->mutable_status() = ToProto(absl::ResourceExhaustedError(
      absl::StrCat(context_.worker, ": generates ", kMaxGenerations, " texts already; try again")));
  send_(message);
}

void GenerationRunner::HandleCancel(const v1::CancelGeneration& cancel) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& generation : generations_) {
    if (generation->id() == cancel.generation_id()) generation->Cancel();
  }
}

void GenerationRunner::CancelAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& generation : generations_) generation->Cancel();
}

}  // namespace tessera
