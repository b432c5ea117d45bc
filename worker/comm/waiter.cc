#include "worker/comm/waiter.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <thread>

namespace tessera {
namespace {

// Steady: neither deadline nor yield time follows changes of the wall clock.
absl::Time Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

constexpr int kYieldsPerClock = 16;

int NumCores() {
  static const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores;
}

}  // namespace

Waiter::Waiter(Board* board, int num_members)
    : board_(board), spins_(num_members <= NumCores() ? kSpins : kCrowdedSpins) {}

absl::Duration Waiter::elapsed() const { return Now() - start_; }

void Waiter::Arm() {
  if (!sleeping_ || board_ == nullptr) return;
  announced_ = board_->AnnounceSleep();
  armed_ = true;
}

void Waiter::Disarm() {
  if (armed_) board_->CancelSleep();
  armed_ = false;
}

void Waiter::Rest(Transfer* blocker) {
  if (!sleeping_) {
    if (++rests_ <= spins_) return;
    if (rests_ == spins_ + 1) start_ = Now();
    // A transfer's completion wakes, and the thread that completes it needs the core.
    if (blocker != nullptr) {
      sleeping_ = true;
      return;
    }
    sched_yield();
    if (rests_ % kYieldsPerClock == 0) sleeping_ = Now() - start_ >= kYieldFor;
    return;
  }
  if (blocker != nullptr) {
    Disarm();
    // Mapped members do not end this sleep, so it is short where there are any.
    blocker->WaitFor(board_ == nullptr ? kSleepFor : std::min(kSleepFor, kYieldFor));
  } else if (armed_) {
    armed_ = false;
    board_->Sleep(announced_, kSleepFor);
  } else {
    timespec pause = absl::ToTimespec(kYieldFor);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
}

}  // namespace tessera
