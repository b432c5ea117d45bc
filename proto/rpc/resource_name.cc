#include "proto/rpc/resource_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {
constexpr char kJobs[] = "trainingJobs/";
constexpr char kWorkers[] = "workers/";
}  // namespace

absl::Status CheckResourceId(absl::string_view id, absl::string_view field) {
  bool valid =
      !id.empty() && id.size() <= 63 && absl::ascii_islower(id.front()) && id.back() != '-';
  for (char c : id) valid = valid && (absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-');
  if (valid) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("\"", id.substr(0, 80), "\""),
                      "must match [a-z]([-a-z0-9]{0,61}[a-z0-9])?");
}

std::string JobName(absl::string_view job_id) { return absl::StrCat(kJobs, job_id); }
std::string WorkerName(absl::string_view worker_id) { return absl::StrCat(kWorkers, worker_id); }

absl::StatusOr<std::string> JobId(absl::string_view name, absl::string_view field) {
  absl::string_view id = name;
  if (!absl::ConsumePrefix(&id, kJobs)) {
    return InvalidField(field, absl::StrCat("\"", name.substr(0, 80), "\""),
                        "must be trainingJobs/{job}");
  }
  absl::Status status = CheckResourceId(id, field);
  if (!status.ok()) return status;
  return std::string(id);
}

}  // namespace tessera
