// How a member waits: a few spins, then yields for a millisecond, then sleep. Ranks may outnumber
// cores, so that a spinning waiter would keep the awaited member from running. For a message link
// there are no yields: another thread completes its transfers and wakes the waiter.
#ifndef TESSERA_WORKER_COMM_WAITER_H_
#define TESSERA_WORKER_COMM_WAITER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "worker/comm/board.h"
#include "worker/comm/message_link.h"

namespace tessera {

// One wait. Used as
//
//   for (Waiter waiter(board);;) {
//     waiter.Arm();
//     if (condition) break;
//     waiter.Rest(blocker);
//   }
class Waiter {
 public:
  static constexpr int kSpins = 20;
  // Where members outnumber cores, whoever is awaited probably needs this one.
  static constexpr int kCrowdedSpins = 2;
  static constexpr absl::Duration kYieldFor = absl::Milliseconds(1);
  // Bounds how long a member's death, which rings no board, goes unnoticed.
  static constexpr absl::Duration kSleepFor = absl::Milliseconds(10);

  // board: null where nobody rings. It outlives the waiter. num_members: of the group.
  Waiter(Board* board, int num_members);
  ~Waiter() { Disarm(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void Arm();
  // Sleeps, when it comes to that, on `blocker` or, where null, on the board.
  void Rest(Transfer* blocker);

  // Whether the wait has come to sleeping: then there is time to look for dead peers.
  bool is_slow() const { return sleeping_; }
  absl::Duration elapsed() const;  // REQUIRES: is_slow()

 private:
  void Disarm();

  Board* const board_;
  const int spins_;
  int rests_ = 0;
  absl::Time start_;
  bool sleeping_ = false;
  bool armed_ = false;
  uint32_t announced_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_WAITER_H_
