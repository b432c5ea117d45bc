#include "worker/comm/control_channel.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status ControlChannel::Notice() {
  std::lock_guard<std::mutex> lock(mutex_);
  ReadLocked();
  return notice_;
}

bool ControlChannel::IsGone() {
  std::lock_guard<std::mutex> lock(mutex_);
  ReadLocked();
  return is_gone_;
}

// The one frame of this channel: "CODE REASON".
void ControlChannel::ReadLocked() {
  if (is_gone_ || !notice_.ok()) return;
  absl::StatusOr<bool> complete = reader_.Read(fd_.get());
  if (!complete.ok()) is_gone_ = true;
  if (!complete.ok() || !*complete) return;
  const std::string text = reader_.Take().text;
  const size_t space = text.find(' ');
  int code = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(0, space), &code) || code == 0) {
    code = static_cast<int>(absl::StatusCode::kInternal);
  }
  notice_ = absl::Status(static_cast<absl::StatusCode>(code),
                         space == std::string::npos ? text : text.substr(space + 1));
}

void ControlChannel::Notify(const absl::Status& reason) {
  // A deadline in the past: a socket that takes no few bytes belongs to a process that reads none.
  SendFrame(fd_.get(),
            absl::StrCat(static_cast<int>(reason.code()), " ", reason.message().substr(0, 1024)),
            {}, Patience{})
      .IgnoreError();
}

}  // namespace tessera
