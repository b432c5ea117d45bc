// Sleeping on a word of shared memory, across processes.
#ifndef TESSERA_WORKER_COMM_FUTEX_H_
#define TESSERA_WORKER_COMM_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "absl/time/time.h"

namespace tessera {

// Returns when the word is not `expected`, after a wake-up, after `limit`, or for no reason.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration limit) {
  const timespec relative = absl::ToTimespec(limit);
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

inline void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_FUTEX_H_
