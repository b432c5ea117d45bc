#include "worker/comm/socket_dir.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/comm/socket.h"

namespace tessera {
namespace {

void RemoveDeadSockets(const std::string& path) {
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    // ListenUnix gives a socket this name only once somebody listens on it.
    if (!absl::EndsWith(entry->d_name, ".sock")) continue;
    const std::string socket = absl::StrCat(path, "/", entry->d_name);
    const Patience patience{std::chrono::steady_clock::now() + std::chrono::milliseconds(10)};
    errno = 0;
    if (!ConnectUnix(socket, patience).ok() && errno == ECONNREFUSED) unlink(socket.c_str());
  }
  closedir(directory);
}

}  // namespace

absl::Status PrepareSocketDir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket directory ", path, ": ", strerror(errno)));
  }
  struct stat directory = {};
  if (lstat(path.c_str(), &directory) != 0 || !S_ISDIR(directory.st_mode) ||
      directory.st_uid != geteuid() || (directory.st_mode & 0077) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket directory ", path,
                     " must be a directory of this user, closed to all others (mode 0700)"));
  }
  RemoveDeadSockets(path);
  return absl::OkStatus();
}

}  // namespace tessera
