// The connection over which two members met, kept: its end tells that a process is gone, and the
// reason of an abort travels over it.
#ifndef TESSERA_WORKER_COMM_CONTROL_CHANNEL_H_
#define TESSERA_WORKER_COMM_CONTROL_CHANNEL_H_

#include <mutex>

#include "absl/base/thread_annotations.h"
#include "worker/comm/message_link.h"
#include "worker/comm/socket.h"

namespace tessera {

class ControlChannel : public PeerWatch {
 public:
  explicit ControlChannel(UniqueFd fd) : fd_(std::move(fd)) {}
  absl::Status Notice() override;
  bool IsGone() override;
  void Notify(const absl::Status& reason) override;

 private:
  void ReadLocked();

  const UniqueFd fd_;
  std::mutex mutex_;
  FrameReader reader_ ABSL_GUARDED_BY(mutex_);
  bool is_gone_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status notice_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_CONTROL_CHANNEL_H_
