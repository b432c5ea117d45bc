#include "worker/comm/join.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "worker/comm/membership.h"

namespace tessera {

absl::Status CheckSpec(const GroupSpec& spec, const std::string& own_address) {
  const int size = static_cast<int>(spec.members.size());
  if (spec.name.empty() || spec.job_uid.empty()) {
    return absl::InvalidArgumentError("name and job uid must be given");
  }
  if ((spec.name + spec.job_uid).find('\n') != std::string::npos) {
    return absl::InvalidArgumentError("name and job uid must be one line each");
  }
  if (spec.group_rank < 0 || spec.group_rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("no group rank ", spec.group_rank, " among ", size, " members"));
  }
  if (spec.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("the time-out must be positive");
  }
  std::set<std::string> addresses;
  for (int member = 0; member < size; ++member) {
    if (!addresses.insert(spec.members[member].address).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(MemberName(spec, member), " has the address of another member"));
    }
  }
  if (spec.members[spec.group_rank].address != own_address) {
    return absl::InvalidArgumentError(absl::StrCat(
        MemberName(spec, spec.group_rank), " has address \"", spec.members[spec.group_rank].address,
        "\", this process \"", own_address, "\": the assignment is for another process"));
  }
  return absl::OkStatus();
}

std::string GroupKey(const GroupSpec& spec) {
  return absl::StrCat(spec.job_uid, "\n", spec.epoch, "\n", spec.name);
}

absl::Status JoinError(const GroupSpec& spec, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("join of ", GroupName(spec), ", group rank ", spec.group_rank,
                                   " of ", spec.members.size(), ": ", why.message()));
}

void AbortedJoins::Add(absl::string_view job_uid, int64_t epoch, const absl::Status& reason) {
  newest_last_.push_back({std::string(job_uid), epoch, reason});
  if (newest_last_.size() > kKept) newest_last_.pop_front();
}

absl::Status AbortedJoins::Check(const GroupSpec& spec) const {
  for (const Aborted& each : newest_last_) {
    if (each.job_uid == spec.job_uid && spec.epoch <= each.epoch) return each.reason;
  }
  return absl::OkStatus();
}

}  // namespace tessera
