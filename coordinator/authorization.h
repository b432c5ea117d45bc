// Who may call what: a client's certificate maps to a role.
#ifndef TESSERA_COORDINATOR_AUTHORIZATION_H_
#define TESSERA_COORDINATOR_AUTHORIZATION_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tessera {

enum class Role { kUser, kWorker, kAdmin };

// With mutual TLS, the common name (or a subject alternative name) of the client's certificate
// decides: a worker identity may only attach, an admin may do everything, everyone else is a user
// and may do everything but attach. Without client certificates everyone is an admin: then the
// server is on loopback, or its operator said otherwise. Immutable, thread-safe.
class Authorization {
 public:
  Authorization(bool client_certificates, std::set<std::string> worker_identities,
                std::set<std::string> admin_identities);

  // identities: the names in the caller's certificate.
  Role RoleOf(const std::vector<std::string>& identities) const;
  // PERMISSION_DENIED naming identity and role.
  absl::Status CheckMayAttach(const std::vector<std::string>& identities) const;
  absl::Status CheckMayUse(const std::vector<std::string>& identities) const;

 private:
  const bool client_certificates_;
  const std::set<std::string> worker_identities_;
  const std::set<std::string> admin_identities_;
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_AUTHORIZATION_H_
