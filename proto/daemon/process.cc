#include "proto/daemon/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/random/random.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace tessera {

std::vector<char*> NormalizeFlags(int argc, char** argv, std::vector<std::string>& storage) {
  storage.assign(argv, argv + argc);
  for (size_t i = 1; i < storage.size(); ++i) {
    std::string& arg = storage[i];
    if (!absl::StartsWith(arg, "--")) continue;
    for (size_t c = 2; c < arg.size() && arg[c] != '='; ++c) {
      if (arg[c] == '-') arg[c] = '_';
    }
  }
  std::vector<char*> pointers;
  pointers.reserve(storage.size() + 1);
  for (std::string& arg : storage) pointers.push_back(arg.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text, absl::string_view flag) {
  struct Suffix {
    const char* name;
    double factor;
  };
  static constexpr Suffix kSuffixes[] = {{"KiB", 1024.0},
                                         {"MiB", 1024.0 * 1024},
                                         {"GiB", 1024.0 * 1024 * 1024},
                                         {"TiB", 1024.0 * 1024 * 1024 * 1024},
                                         {"KB", 1e3},
                                         {"MB", 1e6},
                                         {"GB", 1e9},
                                         {"TB", 1e12}};
  absl::string_view number = text;
  double factor = 1;
  for (const Suffix& suffix : kSuffixes) {
    if (absl::ConsumeSuffix(&number, suffix.name)) {
      factor = suffix.factor;
      break;
    }
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !std::isfinite(value) || value <= 0 ||
      value * factor > 9e18 || value * factor < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": \"", text, "\": must be a positive number of bytes such as 512MiB or 1.5GiB"));
  }
  return static_cast<int64_t>(value * factor);
}

absl::Status LockFolder(const std::string& folder, absl::string_view flag) {
  const std::string path = absl::StrCat(folder, "/lock");
  // Open for as long as the process lives; the lock goes with it.
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(flag, ": ", path, ": ", strerror(errno)));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t size = read(fd, pid, sizeof(pid) - 1);
    close(fd);
    return absl::UnavailableError(
        absl::StrCat(flag, ": ", folder, ": is another process's",
                     size > 0 ? absl::StrCat(" (pid ", absl::StripAsciiWhitespace(pid), ")") : ""));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || write(fd, pid.data(), pid.size()) < 0) {
    return absl::UnavailableError(absl::StrCat(flag, ": ", path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

void QuietGrpc() { setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0); }

std::string NewUuid() {
  absl::BitGen random;
  const uint64_t high = absl::Uniform<uint64_t>(random);
  const uint64_t low = absl::Uniform<uint64_t>(random);
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%012x", high >> 32, (high >> 16) & 0xffff,
                         high & 0xfff, 0x8000 | ((low >> 48) & 0x3fff), low & 0xffffffffffff);
}

TerminationSignal::TerminationSignal() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int TerminationSignal::Wait() {
  int signal = 0;
  sigwait(&set_, &signal);
  return signal;
}

}  // namespace tessera
