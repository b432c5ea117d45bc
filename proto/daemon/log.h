// Structured log lines of a daemon on stderr: one line an event, as text or JSON.
#ifndef TESSERA_PROTO_DAEMON_LOG_H_
#define TESSERA_PROTO_DAEMON_LOG_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tessera {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

// "debug", "info", "warning", "error"; "text", "json". INVALID_ARGUMENT names the flag.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text);
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text);

// Keys: ts (RFC 3339, UTC), level, msg, component, then the event's own (job, step, epoch, worker,
// ...). The same msg more than `kBurst` times a second is dropped and counted; the next line that
// passes carries the count as "repeats". Thread-safe.
class Logger {
 public:
  using Field = std::pair<absl::string_view, absl::AlphaNum>;
  using Fields = std::initializer_list<Field>;
  static constexpr int kBurst = 20;

  // sink gets whole lines with their newline; absent: stderr. Clock absent: absl::Now.
  Logger(std::string component, LogLevel level, LogFormat format,
         std::function<void(const std::string&)> sink = nullptr,
         std::function<absl::Time()> now = nullptr);

  void Debug(absl::string_view msg, Fields fields = {}) { Write(LogLevel::kDebug, msg, fields); }
  void Info(absl::string_view msg, Fields fields = {}) { Write(LogLevel::kInfo, msg, fields); }
  void Warning(absl::string_view msg, Fields fields = {}) {
    Write(LogLevel::kWarning, msg, fields);
  }
  void Error(absl::string_view msg, Fields fields = {}) { Write(LogLevel::kError, msg, fields); }

 private:
  struct Rate {
    int64_t second = 0;
    int count = 0;
    int64_t dropped = 0;
  };
  void Write(LogLevel level, absl::string_view msg, Fields fields);

  const std::string component_;
  const LogLevel level_;
  const LogFormat format_;
  const std::function<void(const std::string&)> sink_;
  const std::function<absl::Time()> now_;
  std::mutex mutex_;
  std::map<std::string, Rate, std::less<>> rates_;  // by msg; guarded by mutex_
};

}  // namespace tessera

#endif  // TESSERA_PROTO_DAEMON_LOG_H_
