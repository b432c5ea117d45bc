// The control block of one group inside one host: a piece of memory that all its members share and
// through which they tell each other what they have started and finished. README.md has the layout.
#ifndef TESSERA_WORKER_COMM_BOARD_H_
#define TESSERA_WORKER_COMM_BOARD_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "worker/comm/communicator.h"

namespace tessera {

// What a member tells the others of a collective it has started.
struct Posting {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  int32_t root = 0;
  int64_t num_elements = 0;   // of the input
  int64_t input_offset = 0;   // bytes from the start of the member's region
  int64_t output_offset = 0;  // read by all_reduce only, whose results are written by their owner

  bool Agrees(const Posting& other) const {
    return kind == other.kind && dtype == other.dtype && op == other.op && root == other.root &&
           num_elements == other.num_elements;
  }
};

// One region to be copied by its receiver.
struct Message {
  DType dtype = DType::kUInt8;
  int64_t num_elements = 0;
  int64_t offset = 0;
};

// A view of the shared memory, which outlives it. Members may be in different processes. Every
// member writes only its own slot, its own outgoing messages and, once, the abort reason. Each
// method may be called by any thread; those that take `member` as the writer by one at a time.
class Board {
 public:
  // Of a posting: an input of up to this travels in it.
  static constexpr int64_t kCarriedBytes = 64;
  // Unwaited collectives of one member, and unwaited sends from one member to another.
  static constexpr int kMaxPendingCollectives = 64;
  static constexpr int kMaxPendingMessages = 64;

  static int64_t SizeBytes(int group_size);
  // memory: SizeBytes(group_size) bytes, page-aligned; zeroes are a fresh board.
  Board(void* memory, int group_size);

  // Collectives, counted from 1. `member` starts number `sequence`; the others find it, and read it
  // until they have completed it. carried: its input, where that is small, else empty.
  void Post(int member, uint64_t sequence, const Posting& posting, absl::Span<const char> carried);
  const Posting* Find(int member, uint64_t sequence) const;  // null: not posted yet
  // Aligned to a cache line. REQUIRES: Find is not null.
  const char* Carried(int member, uint64_t sequence) const;
  // `member` touches nobody's memory for `sequence` or earlier any more.
  void Finish(int member, uint64_t sequence);
  bool IsFinished(int member, uint64_t sequence) const;

  // Messages from one member to another, counted from 1. False where kMaxPendingMessages are
  // still to be taken.
  bool PostMessage(int from, int to, uint64_t index, const Message& message);
  const Message* FindMessage(int from, int to, uint64_t index) const;  // null: not posted yet
  void TakeMessage(int from, int to, uint64_t index);
  bool IsTaken(int from, int to, uint64_t index) const;

  // `member` will do nothing more in this group.
  void Leave(int member);
  bool has_left(int member) const;

  // The first abort stays. code and message: what the others report.
  void Abort(const absl::Status& reason);
  bool aborted() const;
  absl::Status abort_reason() const;  // REQUIRES: aborted()

  // Brackets every access to other members' memory. Enter is false after an abort, so that once a
  // member has seen the abort and nobody else is inside, its memory is its own again.
  bool Enter(int member);
  void Exit(int member);
  bool IsInside(int member) const;

  // Sleeping: announce, look once more at what is awaited, then sleep. Every change above wakes.
  uint32_t AnnounceSleep();
  void Sleep(uint32_t announced, absl::Duration limit);
  void CancelSleep();

 private:
  struct Header;
  struct Slot;
  struct Entry;
  Slot& slot(int member) const;
  Entry& entry(int from, int to, uint64_t index) const;
  void Ring();

  char* const memory_;
  const int group_size_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_BOARD_H_
