// tessera-coordinator: parses flags, opens the journal, serves until SIGTERM.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/coordinator_server.h"
#include "proto/daemon/process.h"
#include "proto/daemon/version.h"
#include "storage/key_value_store.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7433", "Address to serve on; port 0 chooses one.");
ABSL_FLAG(std::string, state_dir, "", "Folder of the journal; made if absent. Required.");
ABSL_FLAG(std::string, tls_cert, "", "PEM certificate of this server.");
ABSL_FLAG(std::string, tls_key, "", "PEM key of this server.");
ABSL_FLAG(std::string, tls_ca, "", "PEM CA of clients; switches mutual TLS on.");
ABSL_FLAG(std::vector<std::string>, worker_identities, {"tessera-worker"},
          "Certificate names that are workers.");
ABSL_FLAG(std::vector<std::string>, admin_identities, {"tessera-admin"},
          "Certificate names that may do everything.");
ABSL_FLAG(bool, allow_insecure, false, "Serve without TLS on an address that is not loopback.");
ABSL_FLAG(std::string, log_format, "text", "text or json.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");
ABSL_FLAG(absl::Duration, collective_timeout, absl::Seconds(120),
          "How long a collective of a job may wait for its members.");

namespace tessera {
namespace {

int Fail(int code, const absl::Status& status) {
  fprintf(stderr, "tessera-coordinator: %s\n", std::string(status.message()).c_str());
  return code;
}

// Written to a temporary name first, so that a reader never sees half of it.
absl::Status WriteEndpoint(const std::string& state_dir, const std::string& address) {
  const std::string path = absl::StrCat(state_dir, "/endpoint");
  const std::string temporary = path + ".tmp";
  FILE* file = fopen(temporary.c_str(), "w");
  if (file == nullptr)
    return absl::UnavailableError(absl::StrCat(temporary, ": cannot be written"));
  const bool written = fprintf(file, "%s\n", address.c_str()) > 0;
  if ((fclose(file) != 0) || !written || rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  }
  return absl::OkStatus();
}

int Main() {
  TerminationSignal termination;
  absl::StatusOr<LogLevel> level = ParseLogLevel(absl::GetFlag(FLAGS_log_level));
  if (!level.ok()) return Fail(kExitUsage, level.status());
  absl::StatusOr<LogFormat> format = ParseLogFormat(absl::GetFlag(FLAGS_log_format));
  if (!format.ok()) return Fail(kExitUsage, format.status());
  const std::string state_dir = absl::GetFlag(FLAGS_state_dir);
  if (state_dir.empty()) {
    return Fail(kExitUsage, absl::InvalidArgumentError("--state-dir is required"));
  }
  CoordinatorServerOptions server_options;
  server_options.listen = absl::GetFlag(FLAGS_listen);
  server_options.tls = {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key),
                        absl::GetFlag(FLAGS_tls_ca)};
  absl::Status exposure =
      CheckExposure(server_options.listen, server_options.tls, absl::GetFlag(FLAGS_allow_insecure));
  if (!exposure.ok()) return Fail(kExitUsage, exposure);

  Logger log("coordinator", *level, *format);
  std::error_code error;
  std::filesystem::create_directories(state_dir, error);
  absl::StatusOr<std::unique_ptr<KeyValueStore>> store =
      OpenRocksKeyValueStore(absl::StrCat(state_dir, "/journal"));
  if (!store.ok()) return Fail(kExitState, store.status());

  SystemClock clock;
  ControllerOptions options;
  options.collective_timeout = absl::GetFlag(FLAGS_collective_timeout);
  options.on_fatal = [&log](const absl::Status& status) {
    log.Error("the journal cannot be written", {{"error", status.ToString()}});
    _exit(kExitState);
  };
  absl::StatusOr<std::unique_ptr<Controller>> controller =
      Controller::Create(options, store->get(), &clock, &log);
  if (!controller.ok()) return Fail(kExitState, controller.status());

  const auto workers = absl::GetFlag(FLAGS_worker_identities);
  const auto admins = absl::GetFlag(FLAGS_admin_identities);
  const Authorization authorization(!server_options.tls.ca.empty(),
                                    std::set<std::string>(workers.begin(), workers.end()),
                                    std::set<std::string>(admins.begin(), admins.end()));
  absl::StatusOr<std::unique_ptr<CoordinatorServer>> server =
      CoordinatorServer::Start(server_options, controller->get(), &authorization);
  if (!server.ok()) return Fail(kExitUsage, server.status());
  absl::Status endpoint = WriteEndpoint(state_dir, (*server)->address());
  if (!endpoint.ok()) return Fail(kExitState, endpoint);
  log.Info("serving", {{"address", (*server)->address()},
                       {"tls", server_options.tls.enabled() ? "on" : "off"}});

  const int signal = termination.Wait();
  log.Info("stopping", {{"signal", signal}});
  (*server)->Stop();
  log.Info("stopped");
  return kExitOk;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::QuietGrpc();
  absl::InitializeSymbolizer(argv[0]);
  absl::InstallFailureSignalHandler({});
  absl::SetProgramUsageMessage(
      "Tessera's coordinator: keeps jobs, assigns ranks and groups to workers.");
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "coordinator/main.cc");
  };
  usage.version_string = [] {
    return absl::StrCat("tessera-coordinator ", tessera::kVersion, "\n");
  };
  absl::SetFlagsUsageConfig(usage);
  std::vector<std::string> storage;
  std::vector<char*> args = tessera::NormalizeFlags(argc, argv, storage);
  const std::vector<char*> rest =
      absl::ParseCommandLine(static_cast<int>(storage.size()), args.data());
  if (rest.size() > 1) {
    fprintf(stderr, "tessera-coordinator: unexpected argument %s\n", rest[1]);
    return tessera::kExitUsage;
  }
  return tessera::Main();
}
