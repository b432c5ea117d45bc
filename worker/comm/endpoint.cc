#include "worker/comm/endpoint.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera {

namespace {
constexpr char kVersion[] = "tessera-comm/1";
}

std::string Endpoint::ToString() const {
  return absl::StrCat(kVersion, " ", host_id, " ", instance, " ", socket_name, " ", tcp_ip, " ",
                      tcp_port);
}

absl::StatusOr<Endpoint> Endpoint::Parse(const std::string& text) {
  const std::vector<std::string> fields = absl::StrSplit(text, ' ');
  Endpoint endpoint;
  if (fields.size() != 6 || fields[0] != kVersion || fields[2].size() != 32 ||
      fields[3].find('/') != std::string::npos ||
      !absl::SimpleAtoi(fields[5], &endpoint.tcp_port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not an address of version ", kVersion));
  }
  endpoint.host_id = fields[1];
  endpoint.instance = fields[2];
  endpoint.socket_name = fields[3];
  endpoint.tcp_ip = fields[4];
  return endpoint;
}

absl::StatusOr<std::string> HostId(const std::string& socket_dir, const std::string& label) {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat directory = {}, users = {};
  if (boot_id.empty() || stat(socket_dir.c_str(), &directory) != 0 ||
      stat("/proc/self/ns/user", &users) != 0) {
    return absl::UnavailableError(
        absl::StrCat("host id with socket directory ", socket_dir, ": ", strerror(errno)));
  }
  std::string id = absl::StrCat(boot_id, ":", users.st_ino, ":", geteuid(), ":",
                                absl::Hex(directory.st_dev), ":", directory.st_ino);
  if (!label.empty()) absl::StrAppend(&id, ":", label);
  return id;
}

absl::StatusOr<std::string> RandomInstance() {
  char bits[16];
  if (getrandom(bits, sizeof(bits), 0) != sizeof(bits)) {
    return absl::UnavailableError(absl::StrCat("getrandom: ", strerror(errno)));
  }
  return absl::BytesToHexString(absl::string_view(bits, sizeof(bits)));
}

}  // namespace tessera
