#include "proto/daemon/log.h"

#include <cstdio>

#include "absl/strings/str_format.h"

namespace tessera {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

// A JSON string; bytes that are not printable ASCII are escaped, so a line is always one line.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool NeedsQuotes(absl::string_view text) {
  if (text.empty()) return true;
  for (char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == '"' || c == '=' || c == 0x7f) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text) {
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (text == LevelName(level)) return level;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--log-level: \"", text, "\": must be debug, info, warning or error"));
}

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("--log-format: \"", text, "\": must be text or json"));
}

Logger::Logger(std::string component, LogLevel level, LogFormat format,
               std::function<void(const std::string&)> sink, std::function<absl::Time()> now)
    : component_(std::move(component)),
      level_(level),
      format_(format),
      sink_(sink ? std::move(sink) : [](const std::string& line) { fputs(line.c_str(), stderr); }),
      now_(now ? std::move(now) : [] { return absl::Now(); }) {}

void Logger::Write(LogLevel level, absl::string_view msg, Fields fields) {
  if (level < level_) return;
  const absl::Time now = now_();
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = rates_.find(msg);
  if (it == rates_.end()) it = rates_.emplace(std::string(msg), Rate()).first;
  Rate& rate = it->second;
  if (rate.second != absl::ToUnixSeconds(now)) {
    rate.second = absl::ToUnixSeconds(now);
    rate.count = 0;
  }
  if (++rate.count > kBurst) {
    ++rate.dropped;
    return;
  }
  const std::string ts = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone());
  std::string line;
  if (format_ == LogFormat::kJson) {
    line = absl::StrCat("{\"ts\":\"", ts, "\",\"level\":\"", LevelName(level),
                        "\",\"msg\":", Quoted(msg), ",\"component\":", Quoted(component_));
    for (const Field& field : fields) {
      absl::StrAppend(&line, ",", Quoted(field.first), ":", Quoted(field.second.Piece()));
    }
    if (rate.dropped > 0) absl::StrAppend(&line, ",\"repeats\":", rate.dropped);
    line += "}\n";
  } else {
    line = absl::StrCat(ts, " ", LevelName(level), " ", component_, ": ", msg);
    for (const Field& field : fields) {
      absl::string_view value = field.second.Piece();
      absl::StrAppend(&line, " ", field.first, "=",
                      NeedsQuotes(value) ? Quoted(value) : std::string(value));
    }
    if (rate.dropped > 0) absl::StrAppend(&line, " repeats=", rate.dropped);
    line += "\n";
  }
  rate.dropped = 0;
  sink_(line);
}

}  // namespace tessera
