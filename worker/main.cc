// tessera-worker: parses flags, opens the device and the data path, stays attached until SIGTERM.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "proto/daemon/log.h"
#include "proto/daemon/process.h"
#include "proto/daemon/version.h"
#include "proto/rpc/resource_name.h"
#include "worker/comm/cpu_transport.h"
#include "worker/service/attach_client.h"
#include "worker/service/data_checker.h"
#include "worker/service/generation_runner.h"
#include "worker/service/job_runner.h"
#include "worker/service/worker_metrics.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:7433", "Address of the coordinator.");
ABSL_FLAG(std::string, name, "", "Name of this worker: workers/{name}. Required.");
ABSL_FLAG(std::string, state_dir, "", "Folder of this worker alone; made if absent. Required.");
ABSL_FLAG(std::string, data_root, "", "Folder under which jobs' data files lie. Required.");
ABSL_FLAG(std::string, export_root, "",
          "Folder under which jobs write their exports; made when needed. Default: exports in the "
          "state folder.");
ABSL_FLAG(int, keep_weights, 4,
          "Jobs whose final weights are kept in the state folder, to generate from; 0: none.");
ABSL_FLAG(std::string, device_memory, "1GiB", "Capacity of the device's arena.");
ABSL_FLAG(std::string, host_memory, "1GiB",
          "Capacity of the pool of host memory for offloaded state; 0: none.");
ABSL_FLAG(bool, require_pinned, false,
          "Fail where the system does not allow host memory to be page-locked, instead of a "
          "warning.");
ABSL_FLAG(
    std::string, nvme_dir, "",
    "Folder on a local disk, of this worker alone, for offloaded and suspended state; made if "
    "absent. Default: nvme in the state folder.");
ABSL_FLAG(std::string, nvme_reserve, "256MiB",
          "Space on the disk of --nvme-dir that is left free.");
ABSL_FLAG(int, threads, 1, "Threads that one operation may use.");
ABSL_FLAG(std::string, shared_memory_dir, "",
          "Folder where the workers of this host meet to share memory; the same for all of them. "
          "Default: tessera-{uid} in $XDG_RUNTIME_DIR, /run/user/{uid} or /tmp.");
ABSL_FLAG(std::string, data_interface, "",
          "Numeric IP address under which other hosts reach this worker's data path (TCP, without "
          "encryption: use a private network). Empty: workers of this host only.");
ABSL_FLAG(std::string, metrics_listen, "",
          "Address on which /metrics is served for Prometheus, e.g. 127.0.0.1:9464. Empty: not.");
ABSL_FLAG(std::string, tls_cert, "", "PEM certificate of this worker.");
ABSL_FLAG(std::string, tls_key, "", "PEM key of this worker.");
ABSL_FLAG(std::string, tls_ca, "", "PEM CA of the coordinator; switches TLS on.");
ABSL_FLAG(std::string, log_format, "text", "text or json.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");

namespace tessera {
namespace {

int Fail(int code, const absl::Status& status) {
  fprintf(stderr, "tessera-worker: %s\n", std::string(status.message()).c_str());
  return code;
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string SharedMemoryDir() {
  if (!absl::GetFlag(FLAGS_shared_memory_dir).empty()) {
    return absl::GetFlag(FLAGS_shared_memory_dir);
  }
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  std::string base = runtime != nullptr ? runtime : absl::StrCat("/run/user/", getuid());
  if (access(base.c_str(), W_OK) != 0) base = "/tmp";
  return absl::StrCat(base, "/tessera-", getuid());
}

// What only a fresh process can mend ends this one; its supervisor starts it again.
constexpr absl::Duration kStuckLimit = absl::Seconds(30);

int Main() {
  TerminationSignal termination;
  absl::StatusOr<LogLevel> level = ParseLogLevel(absl::GetFlag(FLAGS_log_level));
  if (!level.ok()) return Fail(kExitUsage, level.status());
  absl::StatusOr<LogFormat> format = ParseLogFormat(absl::GetFlag(FLAGS_log_format));
  if (!format.ok()) return Fail(kExitUsage, format.status());
  absl::Status named = CheckResourceId(absl::GetFlag(FLAGS_name), "--name");
  if (!named.ok()) return Fail(kExitUsage, named);
  const std::string state_dir = absl::GetFlag(FLAGS_state_dir);
  const std::string data_root = absl::GetFlag(FLAGS_data_root);
  if (state_dir.empty() || data_root.empty()) {
    return Fail(kExitUsage, absl::InvalidArgumentError("--state-dir and --data-root are required"));
  }
  if (!std::filesystem::is_directory(data_root)) {
    return Fail(kExitUsage, absl::InvalidArgumentError(
                                absl::StrCat("--data-root=", data_root, ": is not a folder")));
  }
  if (absl::GetFlag(FLAGS_threads) < 1 || absl::GetFlag(FLAGS_threads) > 1024) {
    return Fail(kExitUsage,
                absl::InvalidArgumentError(absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads),
                                                        ": must be 1 .. 1024")));
  }
  if (absl::GetFlag(FLAGS_keep_weights) < 0) {
    return Fail(kExitUsage,
                absl::InvalidArgumentError(absl::StrCat(
                    "--keep-weights=", absl::GetFlag(FLAGS_keep_weights), ": must be at least 0")));
  }
  absl::StatusOr<int64_t> memory =
      ParseBytes(absl::GetFlag(FLAGS_device_memory), "--device-memory");
  if (!memory.ok()) return Fail(kExitUsage, memory.status());
  if (*memory < (1 << 20)) {
    return Fail(kExitUsage, absl::InvalidArgumentError(
                                absl::StrCat("--device-memory=", absl::GetFlag(FLAGS_device_memory),
                                             ": must be at least 1MiB")));
  }
  std::error_code error;
  std::filesystem::create_directories(state_dir, error);
  if (error) {
    return Fail(kExitState, absl::UnavailableError(
                                absl::StrCat("--state-dir=", state_dir, ": ", error.message())));
  }

  absl::Status locked = LockFolder(state_dir, "--state-dir");
  if (!locked.ok()) return Fail(kExitState, locked);

  TierHolderOptions tier_options;
  tier_options.worker = WorkerName(absl::GetFlag(FLAGS_name));
  tier_options.num_threads = absl::GetFlag(FLAGS_threads);
  tier_options.requires_pinned = absl::GetFlag(FLAGS_require_pinned);
  tier_options.requires_nvme = !absl::GetFlag(FLAGS_nvme_dir).empty();
  tier_options.nvme_dir = absl::GetFlag(FLAGS_nvme_dir).empty() ? absl::StrCat(state_dir, "/nvme")
                                                                : absl::GetFlag(FLAGS_nvme_dir);
  for (const auto& [text, flag, bytes] :
       {std::tuple{absl::GetFlag(FLAGS_host_memory), "--host-memory",
                   &tier_options.host_memory_bytes},
        std::tuple{absl::GetFlag(FLAGS_nvme_reserve), "--nvme-reserve",
                   &tier_options.nvme_reserve_bytes}}) {
    if (text == "0") continue;
    absl::StatusOr<int64_t> parsed = ParseBytes(text, flag);
    if (!parsed.ok()) {
      return Fail(kExitUsage, absl::InvalidArgumentError(
                                  absl::StrCat(parsed.status().message(), ", or 0 for none")));
    }
    *bytes = *parsed;
  }

  Logger log("worker", *level, *format);
  const std::string worker = WorkerName(absl::GetFlag(FLAGS_name));
  absl::StatusOr<std::unique_ptr<CpuDevice>> device =
      CpuDevice::Create(absl::StrCat(worker, " cpu:0"), *memory, absl::GetFlag(FLAGS_threads));
  if (!device.ok()) return Fail(kExitUsage, device.status());
  absl::StatusOr<std::unique_ptr<TierHolder>> tiers = TierHolder::Create(tier_options, &log);
  if (!tiers.ok()) return Fail(kExitState, tiers.status());
  CpuTransportOptions transport_options;
  transport_options.socket_dir = SharedMemoryDir();
  transport_options.tcp_ip = absl::GetFlag(FLAGS_data_interface);
  absl::StatusOr<std::unique_ptr<CpuTransport>> transport =
      CpuTransport::Create(**device, transport_options);
  if (absl::IsInvalidArgument(transport.status())) {
    return Fail(kExitUsage,
                absl::InvalidArgumentError(absl::StrCat("--shared-memory-dir, --data-interface: ",
                                                        transport.status().message())));
  }
  if (!transport.ok()) return Fail(kExitDeviceError, transport.status());

  std::unique_ptr<MetricsServer> metrics_server;
  if (const std::string address = absl::GetFlag(FLAGS_metrics_listen); !address.empty()) {
    auto server =
        MetricsServer::Create(address, std::make_shared<WorkerMetrics>(worker, **device, **tiers));
    if (!server.ok()) return Fail(kExitUsage, server.status());
    metrics_server = *std::move(server);
  }

  AttachClientOptions client_options;
  client_options.coordinator = absl::GetFlag(FLAGS_coordinator);
  client_options.tls = {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key),
                        absl::GetFlag(FLAGS_tls_ca)};
  absl::StatusOr<std::unique_ptr<AttachClient>> client = AttachClient::Create(client_options, &log);
  if (!client.ok()) return Fail(kExitUsage, client.status());

  auto send = [&client](const v1::WorkerMessage& message) { (*client)->Send(message); };
  const std::string export_root = absl::GetFlag(FLAGS_export_root).empty()
                                      ? absl::StrCat(state_dir, "/exports")
                                      : absl::GetFlag(FLAGS_export_root);
  SetupGate gate;
  KeptWeights kept_weights(absl::StrCat(state_dir, "/weights"), absl::GetFlag(FLAGS_keep_weights));
  const WorkerContext context = {worker,           data_root, export_root,   device->get(),
                                 transport->get(), &gate,     &kept_weights, tiers->get()};
  JobRunner runner(context, &log, send);
  GenerationRunner generations(context, &runner, send);
  DataChecker checker(data_root, send);
  const std::string instance_id = NewUuid();

  AttachCallbacks callbacks;
  callbacks.make_register = [&] {
    generations.CancelAll();  // whoever waited for them has been told that the stream ended
    v1::RegisterWorker request;
    request.set_protocol_version(1);
    request.set_address((*transport)->address());
    v1::Worker& info = *request.mutable_worker();
    info.set_name(worker);
    info.set_instance_id(instance_id);
    info.set_device_kind(DeviceKindName((*device)->kind()));
    info.set_device_memory_bytes((*device)->arena().capacity_bytes());
    info.set_host_id((*transport)->host_id());
    info.set_host_name(HostName());
    info.set_pid(getpid());
    info.set_version(kVersion);
    info.set_threads((*device)->num_threads());
    info.set_host_memory_bytes(tier_options.host_memory_bytes);
    info.set_host_memory_pinned((*tiers)->is_pinned());
    v1::Heartbeat now;
    (*tiers)->AddToHeartbeat(now);
    info.set_host_memory_used_bytes(now.host_memory_used_bytes());
    info.set_nvme_free_bytes(now.nvme_free_bytes());
    info.set_nvme_used_bytes(now.nvme_used_bytes());
    for (v1::SavedState& saved : (*tiers)->Saved()) *request.add_saved() = std::move(saved);
    if (std::optional<v1::RunningJob> running = runner.Running()) {
      *request.mutable_running() = *running;
    }
    return request;
  };
  callbacks.make_backlog = [&] { return runner.Backlog(); };
  callbacks.make_heartbeat = [&] {
    if (runner.IsStuck(kStuckLimit)) {
      log.Error("an aborted job does not end; the process starts anew");
      _exit(kExitDeviceError);
    }
    v1::Heartbeat heartbeat;
    heartbeat.set_device_memory_used_bytes((*device)->arena().usage().current_bytes);
    (*tiers)->AddToHeartbeat(heartbeat);
    if (std::optional<v1::PendingCollective> pending = runner.Pending()) {
      *heartbeat.mutable_pending() = *pending;
    }
    return heartbeat;
  };
  callbacks.handle = [&](const v1::CoordinatorMessage& message) {
    if (message.has_run()) runner.HandleRun(message.run());
    if (message.has_abort()) runner.HandleAbort(message.abort());
    if (message.has_suspend()) runner.HandleSuspend(message.suspend());
    if (message.has_discard_state()) runner.HandleDiscardState(message.discard_state());
    if (message.has_job_ended_ack()) runner.HandleJobEndedAck(message.job_ended_ack());
    if (message.has_run_generation()) generations.HandleRun(message.run_generation());
    if (message.has_cancel_generation()) generations.HandleCancel(message.cancel_generation());
    if (message.has_check_data()) checker.Check(message.check_data());
  };
  log.Info("starting", {{"worker", worker},
                        {"device_memory_bytes", *memory},
                        {"threads", absl::GetFlag(FLAGS_threads)},
                        {"pid", getpid()}});
  (*client)->Start(callbacks);

  const int signal = termination.Wait();
  log.Info("stopping", {{"signal", signal}});
  v1::WorkerMessage stopping;
  stopping.mutable_stopping();
  (*client)->Send(stopping);  // before the job's end, so that no other job is placed here
  runner.Stop(absl::CancelledError(absl::StrCat(worker, " was asked to stop")), absl::Seconds(3));
  (*client)->Stop();
  log.Info("stopped");
  return kExitOk;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  // Threads that wait must sleep: workers share their host's cores, and libgomp's spinning would
  // make a step tens of times slower. It reads its settings when it is loaded, so the process
  // starts anew.
  if (getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);  // comes back only where /proc is not there: then as it is
  }
  // Each job has threads of its own, and malloc an arena for most of them: without a fixed
  // threshold a block of megabytes that was freed stays with each.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  tessera::QuietGrpc();
  absl::InitializeSymbolizer(argv[0]);
  absl::InstallFailureSignalHandler({});
  absl::SetProgramUsageMessage("Tessera's worker: one device, one job after another.");
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "worker/main.cc");
  };
  usage.version_string = [] { return absl::StrCat("tessera-worker ", tessera::kVersion, "\n"); };
  absl::SetFlagsUsageConfig(usage);
  std::vector<std::string> storage;
  std::vector<char*> args = tessera::NormalizeFlags(argc, argv, storage);
  const std::vector<char*> rest =
      absl::ParseCommandLine(static_cast<int>(storage.size()), args.data());
  if (rest.size() > 1) {
    fprintf(stderr, "tessera-worker: unexpected argument %s\n", rest[1]);
    return tessera::kExitUsage;
  }
  return tessera::Main();
}
