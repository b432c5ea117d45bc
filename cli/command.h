// What every command gets, and the commands.
#ifndef TESSERA_CLI_COMMAND_H_
#define TESSERA_CLI_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/connection.h"
#include "cli/model_state.h"

namespace tessera {

enum class OutputFormat { kTable, kWide, kJson, kYaml, kName };

// Global options after parsing.
struct CommandContext {
  ConnectionOptions connection;
  OutputFormat output = OutputFormat::kTable;
  absl::Duration timeout = absl::Seconds(15);  // of unary calls
};

struct CreateOptions {
  std::string file;
  std::string name;  // id of the job; empty: the coordinator chooses
  std::string request_id;
  bool validate_only = false;
  bool watch = false;
};

struct PlanOptions {
  std::string file;      // empty: of model_state
  std::string timeline;  // where to draw the schedule, .svg or .json; empty: nowhere
  ModelStateOptions model_state;
};

struct VerifyOptions {
  std::string file;
  std::string name;  // id of the job; empty: the coordinator chooses
  std::string request_id;
  int32_t steps = 3;
};

struct GetOptions {
  std::string kind;  // "jobs", "job", "workers", "placement"
  std::string name;
};

struct WaitOptions {
  std::string name;
  std::string condition;  // "state=SUCCEEDED"
  absl::Duration timeout;
};

struct GenerateOptions {
  std::string name;  // of a job; or
  std::string path;  // of weights under the data root
  // One of these:
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;  // "-": stdin
  std::optional<std::string> tokens;       // "1,2,3"
  std::string tokenizer;
  std::optional<int32_t> max_new_tokens;
  std::optional<double> temperature;
  int32_t top_k = 0;
  std::optional<double> top_p;
  std::string seed;         // a number; empty: 0
  std::string stop_tokens;  // "1,2,3"
  std::string precision;    // "fp32", "bf16", "fp16"
};

// Each prints data on stdout, progress and errors on stderr, and returns the exit code.
int RunCreate(const CommandContext& context, const CreateOptions& options);
int RunPlan(const CommandContext& context, const PlanOptions& options);
// Asks no coordinator.
int RunPlanModelState(const CommandContext& context, const ModelStateOptions& options);
int RunVerify(const CommandContext& context, const VerifyOptions& options);
int RunGet(const CommandContext& context, const GetOptions& options);
int RunDescribe(const CommandContext& context, const std::string& name);
int RunWatch(const CommandContext& context, const std::string& name);
int RunCancel(const CommandContext& context, const std::string& name);
int RunSuspend(const CommandContext& context, const std::string& name);
int RunResume(const CommandContext& context, const std::string& name);
int RunWait(const CommandContext& context, const WaitOptions& options);
int RunGenerate(const CommandContext& context, const GenerateOptions& options);
int RunDoctor(const CommandContext& context);
int RunExplain(const std::string& field);
int RunCompletion(const std::string& shell);

}  // namespace tessera

#endif  // TESSERA_CLI_COMMAND_H_
