#include "coordinator/authorization.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

absl::Status Denied(const std::vector<std::string>& identities, absl::string_view what) {
  return WithReason(absl::PermissionDeniedError(absl::StrCat(
                        "certificate of \"", absl::StrJoin(identities, ", "), "\" ", what)),
                    "WRONG_ROLE");
}

}  // namespace

Authorization::Authorization(bool client_certificates, std::set<std::string> worker_identities,
                             std::set<std::string> admin_identities)
    : client_certificates_(client_certificates),
      worker_identities_(std::move(worker_identities)),
      admin_identities_(std::move(admin_identities)) {}

Role Authorization::RoleOf(const std::vector<std::string>& identities) const {
  if (!client_certificates_) return Role::kAdmin;
  for (const std::string& identity : identities) {
    if (admin_identities_.count(identity) > 0) return Role::kAdmin;
  }
  for (const std::string& identity : identities) {
    if (worker_identities_.count(identity) > 0) return Role::kWorker;
  }
  return Role::kUser;
}

absl::Status Authorization::CheckMayAttach(const std::vector<std::string>& identities) const {
  if (RoleOf(identities) != Role::kUser) return absl::OkStatus();
  return Denied(identities, "is not a worker identity (--worker-identities)");
}

absl::Status Authorization::CheckMayUse(const std::vector<std::string>& identities) const {
  if (RoleOf(identities) != Role::kWorker) return absl::OkStatus();
  return Denied(identities, "is a worker identity, which may only attach");
}

}  // namespace tessera
