// tessera: the command line. Parses, then hands over to one command.
#include <stdio.h>

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/tokenize_command.h"
#include "proto/daemon/process.h"
#include "proto/daemon/version.h"

namespace tessera {
namespace {

void AddModelStateOptions(CLI::App& plan, CLI::Option& file, ModelStateOptions& options) {
  CLI::Option* parameters =
      plan.add_option("--parameters", options.parameters,
                      "Instead of a file: parameters of the model, such as 350M, 7.5B or 1T")
          ->excludes(&file);
  plan.add_option("--dp", options.dp, "Devices that share the model state; default 1")
      ->needs(parameters);
  plan.add_option("--device-memory", options.device_memory,
                  "Of one device, such as 32GB or 80GiB: tells what fits")
      ->needs(parameters);
  plan.add_option("--precision", options.precision, "bf16, fp16 or fp32; default bf16")
      ->needs(parameters);
}

int Main(int argc, char** argv) {
  CLI::App app("Trains transformer language models on a Tessera cluster.", "tessera");
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Exit codes: 0 success, 1 job failed or condition false, 2 usage, 3 not found or\n"
      "precondition, 4 unavailable, no room or timed out, 5 permission, 6 cancelled,\n"
      "130 interrupted.");
  CommandContext context;
  std::string output = "table";
  double timeout_seconds = 15;
  app.add_option("--endpoint", context.connection.endpoint,
                 "Coordinator, host:port (TESSERA_ENDPOINT; default 127.0.0.1:7433)");
  app.add_option("--cacert", context.connection.ca, "PEM CA of the coordinator (TESSERA_CACERT)");
  app.add_option("--cert", context.connection.cert, "PEM client certificate (TESSERA_CERT)");
  app.add_option("--key", context.connection.key, "PEM client key (TESSERA_KEY)");
  app.add_option("--context", context.connection.context,
                 "Context file (TESSERA_CONFIG; default ~/.config/tessera/config.yaml)");
  app.add_option("-o,--output", output, "table, wide, json, yaml or name");
  app.add_option("--call-timeout", timeout_seconds, "Seconds a call may take; default 15");

  CreateOptions create_options;
  CLI::App* create = app.add_subcommand("create", "Create a training job from a file");
  create->add_option("-f,--file", create_options.file, "Job file, YAML or JSON; - is stdin")
      ->required();
  create->add_option("--name", create_options.name, "Id of the job; default: chosen for you");
  create->add_option("--request-id", create_options.request_id, "UUID that makes a retry safe");
  create->add_flag("--validate-only", create_options.validate_only, "Check, create nothing");
  create->add_flag("--watch", create_options.watch, "Show progress until the job ends");

  PlanOptions plan_options;
  CLI::App* plan = app.add_subcommand("plan", "Show what a job's layout would be; create nothing");
  plan->footer(
      "Ranks with their groups, layers of each stage, schedule with its bubble, device memory,\n"
      "and traffic of a step. Needs a coordinator, but no worker; data files are not looked at.\n"
      "With --parameters: model state of a device by zero_stage. Needs neither.");
  CLI::Option* plan_file =
      plan->add_option("-f,--file", plan_options.file, "Job file, YAML or JSON; - is stdin");
  plan->add_option("--timeline", plan_options.timeline,
                   "Draw the simulated schedule into this file: .svg, or .json for Perfetto")
      ->needs(plan_file);
  AddModelStateOptions(*plan, *plan_file, plan_options.model_state);

  VerifyOptions verify_options;
  CLI::App* verify =
      app.add_subcommand("verify", "Run a job's first steps on its mesh and on one rank; compare");
  verify->footer(
      "Creates a job, follows it, and prints what it found. Exit code 0: losses, gradient norms\n"
      "and every parameter agree within tolerances; 1: they differ, or the job failed. Ctrl-C\n"
      "detaches. evaluation, sample, export and trace of the file are left out.");
  verify->add_option("-f,--file", verify_options.file, "Job file, YAML or JSON; - is stdin")
      ->required();
  verify->add_option("--steps", verify_options.steps, "Steps to compare, 1 .. 100; default 3");
  verify->add_option("--name", verify_options.name, "Id of the job; default: chosen for you");
  verify->add_option("--request-id", verify_options.request_id, "UUID that makes a retry safe");

  GetOptions get_options;
  CLI::App* get = app.add_subcommand("get", "List jobs or workers, or show a placement");
  get->require_subcommand(1);
  for (const char* kind : {"jobs", "job", "workers", "placement"}) {
    CLI::App* one = get->add_subcommand(kind);
    if (std::string(kind) != "workers") {
      CLI::Option* name = one->add_option("name", get_options.name, "Job");
      if (std::string(kind) == "placement" || std::string(kind) == "job") name->required();
    }
    one->callback([&get_options, kind] { get_options.kind = kind; });
  }

  std::string name;
  CLI::App* describe = app.add_subcommand("describe", "Show everything about a job");
  CLI::App* describe_job = describe->add_subcommand("job", "Show everything about a job");
  describe->require_subcommand(1);
  describe_job->add_option("name", name, "Job")->required();
  CLI::App* watch = app.add_subcommand("watch", "Show a job's progress until it ends");
  watch->add_option("name", name, "Job")->required();
  CLI::App* cancel = app.add_subcommand("cancel", "End a job");
  cancel->add_option("name", name, "Job")->required();
  CLI::App* suspend =
      app.add_subcommand("suspend", "Save a job's state on its workers and free their devices");
  suspend->footer(
      "Returns at once; the job is SUSPENDED at the end of its step, and stays so until it is\n"
      "resumed or cancelled. tessera wait NAME --for=state=SUSPENDED waits for it.");
  suspend->add_option("name", name, "Job")->required();
  CLI::App* resume = app.add_subcommand("resume", "Let a suspended job go on where it was");
  resume->footer("Returns at once; the job goes on when the workers that hold its state are idle.");
  resume->add_option("name", name, "Job")->required();

  WaitOptions wait_options;
  std::string wait_timeout = "1h";
  CLI::App* wait = app.add_subcommand("wait", "Wait until a job is in a state");
  wait->add_option("name", wait_options.name, "Job")->required();
  wait->add_option("--for", wait_options.condition, "state=STATE")->required();
  wait->add_option("--timeout", wait_timeout, "Such as 30s, 10m, 1h; default 1h");

  GenerateOptions generate_options;
  CLI::App* generate =
      app.add_subcommand("generate", "Generate text from a job's weights, or a folder's");
  generate->footer(
      "Text goes to stdout as it comes; -o json prints one object a line, text in base64.\n"
      "A worker generates at most four texts at once, and stops them while a training job\n"
      "that starts on it takes its memory.");
  generate->add_option("name", generate_options.name, "Job, running or succeeded");
  generate->add_option("--path", generate_options.path,
                       "Instead of a job: a Hugging Face folder or an llm.c checkpoint under the "
                       "workers' data root");
  generate->add_option("--prompt", generate_options.prompt, "Text to go on from");
  generate->add_option("--prompt-file", generate_options.prompt_file,
                       "File with the text; - is stdin");
  generate->add_option("--tokens", generate_options.tokens, "Token ids to go on from: 1,2,3");
  generate->add_option(
      "--tokenizer", generate_options.tokenizer,
      "tokenizer.json or folder under the workers' data root, or bytes; default: the "
      "job's, or the one in --path");
  generate->add_option("--max-new-tokens", generate_options.max_new_tokens,
                       "Default 128, or what the model's context leaves");
  generate->add_option("--temperature", generate_options.temperature, "0 is greedy; default 1");
  generate->add_option("--top-k", generate_options.top_k, "Keep the k likeliest; 0, default: all");
  generate->add_option("--top-p", generate_options.top_p,
                       "Keep the fewest likeliest that add up to p; default 1: all");
  generate->add_option("--seed", generate_options.seed, "Of the sampling; default 0");
  generate->add_option("--stop-tokens", generate_options.stop_tokens, "End after one of these ids");
  generate->add_option("--precision", generate_options.precision,
                       "With --path: fp32, bf16 or fp16; default fp32");

  CLI::App* doctor = app.add_subcommand("doctor", "Check this machine and the connection");
  std::string field;
  CLI::App* explain = app.add_subcommand("explain", "Tell what a field of the job file may be");
  explain->add_option("field", field, "Such as mesh.dp; none: all");
  std::string shell;
  CLI::App* completion = app.add_subcommand("completion", "Print shell completion");
  completion->add_option("shell", shell, "bash, zsh or fish")->required();
  // For the list of commands only: see RunTokenize's caller below.
  CLI::App* tokenize = app.add_subcommand(
      "tokenize", "Turn a text file into a token file (tokenize --help tells more)");
  tokenize->prefix_command();
  CLI::App* version = app.add_subcommand("version", "Print the version");

  // Another program's arguments, of which none is this one's.
  if (argc > 1 && std::string(argv[1]) == "tokenize") return RunTokenize(argv + 2);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kCliOk : kCliUsage;
  }

  auto fail = [&](const absl::Status& status) {
    fputs(ErrorText(status, context.connection.endpoint).c_str(), stderr);
    return ExitCodeOf(status);
  };
  if (!(timeout_seconds > 0 && timeout_seconds <= 86400)) {
    return fail(absl::InvalidArgumentError(absl::StrCat(
        "--call-timeout: ", timeout_seconds, ": must be above 0 and at most 86400 seconds")));
  }
  context.timeout = absl::Seconds(timeout_seconds);
  absl::StatusOr<OutputFormat> format = ParseOutputFormat(output);
  if (!format.ok()) return fail(format.status());
  context.output = *format;
  if (*tokenize) {
    return fail(absl::InvalidArgumentError("tokenize: must be the first word"));
  }
  if (*version) {
    printf("tessera %s\n", kVersion);
    return kCliOk;
  }
  if (*completion) return RunCompletion(shell);
  if (*explain) return RunExplain(field);
  if (*plan && plan_options.file.empty()) {
    return RunPlanModelState(context, plan_options.model_state);
  }

  absl::StatusOr<ConnectionOptions> connection = ResolveConnection(context.connection);
  if (!connection.ok()) return fail(connection.status());
  context.connection = *connection;
  if (*create) return RunCreate(context, create_options);
  if (*plan) return RunPlan(context, plan_options);
  if (*verify) return RunVerify(context, verify_options);
  if (*get) return RunGet(context, get_options);
  if (*describe) return RunDescribe(context, name);
  if (*watch) return RunWatch(context, name);
  if (*cancel) return RunCancel(context, name);
  if (*suspend) return RunSuspend(context, name);
  if (*resume) return RunResume(context, name);
  if (*generate) return RunGenerate(context, generate_options);
  if (*doctor) return RunDoctor(context);
  if (!absl::ParseDuration(wait_timeout, &wait_options.timeout)) {
    return fail(absl::InvalidArgumentError("--timeout: must be a duration such as 30s or 10m"));
  }
  (void)wait;
  return RunWait(context, wait_options);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::QuietGrpc();
  const int code = tessera::Main(argc, argv);
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  perror("error: the output cannot be written");
  return code == tessera::kCliOk ? tessera::kCliFailed : code;
}
