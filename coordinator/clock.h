// Time as the coordinator sees it; tests move it by hand.
#ifndef TESSERA_COORDINATOR_CLOCK_H_
#define TESSERA_COORDINATOR_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time, for people.
  virtual absl::Time Now() const = 0;
  // Never jumps; leases and deadlines are measured on it.
  virtual absl::Duration Monotonic() const = 0;
};

class SystemClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Duration Monotonic() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_CLOCK_H_
