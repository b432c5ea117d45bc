// doctor: what on this machine would trouble a worker, and whether the coordinator answers.
#include <grpcpp/grpcpp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/render.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

// Warnings tell of what may become scarce; failures of what does not work.
class Report {
 public:
  void Advise(bool good, const std::string& what, const std::string& value) {
    Line(good ? "ok" : "WARN", what, value);
  }
  void Require(bool good, const std::string& what, const std::string& value) {
    Line(good ? "ok" : "FAIL", what, value);
    works_ = works_ && good;
  }
  bool works() const { return works_; }

 private:
  static void Line(const char* verdict, const std::string& what, const std::string& value) {
    printf("%-5s %-16s %s\n", verdict, what.c_str(), value.c_str());
  }

  bool works_ = true;
};

// "always [madvise] never": the one in brackets holds.
void CheckHugePages(Report& report) {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(file, modes);
  const bool given = absl::StrContains(modes, "[always]") || absl::StrContains(modes, "[madvise]");
  report.Advise(given, "huge pages",
                given ? "given to those who ask"
                      : "not given: reading the nvme tier may be several times slower (set "
                        "/sys/kernel/mm/transparent_hugepage/enabled to madvise)");
}

void CheckMachine(Report& report) {
  rlimit limit;
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  report.Advise(unlimited || limit.rlim_cur >= (1ull << 30), "memlock",
                unlimited ? "unlimited"
                          : absl::StrCat(HumanBytes(static_cast<double>(limit.rlim_cur)),
                                         " (page-locked buffers may not exceed it: ulimit -l)"));
  getrlimit(RLIMIT_NOFILE, &limit);
  report.Advise(limit.rlim_cur >= 1024, "open files", absl::StrCat(limit.rlim_cur));

  CheckHugePages(report);

  const int fd = memfd_create("tessera-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  report.Require(fd >= 0, "shared memory", fd >= 0 ? "memfd works" : "memfd_create fails");
  if (fd >= 0) close(fd);

  for (const char* path : {"/tmp", "."}) {
    struct statvfs disk;
    if (statvfs(path, &disk) != 0) continue;
    const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    report.Advise(free > 1e9, absl::StrCat("disk ", path), absl::StrCat(HumanBytes(free), " free"));
  }
  report.Advise(true, "processors", absl::StrCat(sysconf(_SC_NPROCESSORS_ONLN)));
}

void CheckCoordinator(const CommandContext& context, Report& report) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(context.connection);
  if (!channel.ok()) {
    report.Require(false, "coordinator", std::string(channel.status().message()));
    return;
  }
  auto stub = grpc::health::v1::Health::NewStub(*channel);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("tessera.v1.Jobs");
  grpc::health::v1::HealthCheckResponse response;
  grpc::ClientContext call;
  SetDeadline(call, absl::Seconds(5));
  const absl::Time begin = absl::Now();
  const absl::Status status = FromGrpc(stub->Check(&call, request, &response));
  const bool serving =
      status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  report.Require(
      serving, "coordinator",
      absl::StrCat(context.connection.endpoint, " ",
                   serving       ? absl::StrCat("serves, answered in ",
                                                absl::FormatDuration(absl::Trunc(absl::Now() - begin,
                                                                                 absl::Microseconds(1))))
                   : status.ok() ? "is not serving"
                                 : std::string(status.message())));
}

}  // namespace

int RunDoctor(const CommandContext& context) {
  Report report;
  CheckMachine(report);
  CheckCoordinator(context, report);
  return report.works() ? kCliOk : kCliFailed;
}

}  // namespace tessera
