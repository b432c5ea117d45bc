#include "worker/comm/board.h"

#include <algorithm>
#include <cstring>

#include "worker/comm/futex.h"

namespace tessera {
namespace {

constexpr int64_t kPage = 4096;
constexpr uint32_t kNoAbort = 0, kAbortBeingWritten = 1, kAborted = 2;

int64_t RoundUp(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

// Words that different members write lie in different cache lines. Loads and stores are
// sequentially consistent throughout: on x86 only the stores cost anything, and Ring and Enter need
// it.
struct Board::Header {
  alignas(64) std::atomic<uint32_t> abort_state;
  int32_t abort_code;
  char abort_message[952];
  alignas(64) std::atomic<uint32_t> events;  // futex word: changes while somebody sleeps
  alignas(64) std::atomic<uint32_t> sleepers;
};

struct Board::Slot {
  alignas(64) std::atomic<uint64_t> posted;
  alignas(64) std::atomic<uint64_t> finished;
  alignas(64) std::atomic<uint32_t> inside;
  std::atomic<uint32_t> has_left;
  struct Line {
    alignas(64) Posting posting;
    alignas(64) char carried[kCarriedBytes];
  };
  // A member has posted at most kMaxPendingCollectives more than it has completed, and completes
  // nothing that another has not posted. So when it posts number n, the others have completed
  // n - 2 kMaxPendingCollectives and read that line no more.
  static constexpr int kLines = 2 * kMaxPendingCollectives;
  Line ring[kLines];
};

struct Board::Entry {
  alignas(64) std::atomic<uint64_t> posted;
  std::atomic<uint64_t> taken;
  Message message;
};

int64_t Board::SizeBytes(int group_size) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  return RoundUp(sizeof(Header)) + RoundUp(sizeof(Slot)) * group_size +
         static_cast<int64_t>(sizeof(Entry)) * kMaxPendingMessages * group_size * group_size;
}

Board::Board(void* memory, int group_size)
    : memory_(static_cast<char*>(memory)), group_size_(group_size) {}

Board::Slot& Board::slot(int member) const {
  return *reinterpret_cast<Slot*>(memory_ + RoundUp(sizeof(Header)) +
                                  RoundUp(sizeof(Slot)) * member);
}

Board::Entry& Board::entry(int from, int to, uint64_t index) const {
  auto* first = reinterpret_cast<Entry*>(memory_ + RoundUp(sizeof(Header)) +
                                         RoundUp(sizeof(Slot)) * group_size_);
  return first[(static_cast<int64_t>(from) * group_size_ + to) * kMaxPendingMessages +
               index % kMaxPendingMessages];
}

void Board::Post(int member, uint64_t sequence, const Posting& posting,
                 absl::Span<const char> carried) {
  Slot& own = slot(member);
  Slot::Line& line = own.ring[sequence % Slot::kLines];
  line.posting = posting;
  std::copy(carried.begin(), carried.end(), line.carried);
  own.posted.store(sequence);
  Ring();
}

const Posting* Board::Find(int member, uint64_t sequence) const {
  const Slot& other = slot(member);
  if (other.posted.load() < sequence) return nullptr;
  return &other.ring[sequence % Slot::kLines].posting;
}

const char* Board::Carried(int member, uint64_t sequence) const {
  return slot(member).ring[sequence % Slot::kLines].carried;
}

void Board::Finish(int member, uint64_t sequence) {
  slot(member).finished.store(sequence);
  Ring();
}

bool Board::IsFinished(int member, uint64_t sequence) const {
  return slot(member).finished.load() >= sequence;
}

bool Board::PostMessage(int from, int to, uint64_t index, const Message& message) {
  Entry& e = entry(from, to, index);
  if (index > kMaxPendingMessages && e.taken.load() != index - kMaxPendingMessages) {
    return false;
  }
  e.message = message;
  e.posted.store(index);
  Ring();
  return true;
}

const Message* Board::FindMessage(int from, int to, uint64_t index) const {
  const Entry& e = entry(from, to, index);
  return e.posted.load() == index ? &e.message : nullptr;
}

void Board::TakeMessage(int from, int to, uint64_t index) {
  entry(from, to, index).taken.store(index);
  Ring();
}

bool Board::IsTaken(int from, int to, uint64_t index) const {
  // A later message in the same entry means that this one was taken.
  return entry(from, to, index).taken.load() >= index;
}

void Board::Leave(int member) {
  slot(member).has_left.store(1);
  Ring();
}

bool Board::has_left(int member) const { return slot(member).has_left.load() != 0; }

void Board::Abort(const absl::Status& reason) {
  Header& header = *reinterpret_cast<Header*>(memory_);
  uint32_t expected = kNoAbort;
  if (!header.abort_state.compare_exchange_strong(expected, kAbortBeingWritten)) return;
  header.abort_code = static_cast<int32_t>(reason.code());
  const size_t length = std::min(reason.message().size(), sizeof(header.abort_message) - 1);
  std::memcpy(header.abort_message, reason.message().data(), length);
  header.abort_message[length] = '\0';
  header.abort_state.store(kAborted);
  Ring();
}

bool Board::aborted() const {
  return reinterpret_cast<const Header*>(memory_)->abort_state.load() == kAborted;
}

absl::Status Board::abort_reason() const {
  const Header& header = *reinterpret_cast<const Header*>(memory_);
  return absl::Status(static_cast<absl::StatusCode>(header.abort_code), header.abort_message);
}

bool Board::Enter(int member) {
  // The order of this store and the load in aborted() matters, so both are sequentially consistent.
  slot(member).inside.store(1);
  if (!aborted()) return true;
  Exit(member);
  return false;
}

void Board::Exit(int member) { slot(member).inside.store(0, std::memory_order_release); }

bool Board::IsInside(int member) const { return slot(member).inside.load() != 0; }

void Board::Ring() {
  // Sequentially consistent with the change before it and with AnnounceSleep: either the sleeper
  // sees the change or this sees the sleeper.
  Header& header = *reinterpret_cast<Header*>(memory_);
  if (header.sleepers.load() == 0) return;
  header.events.fetch_add(1);
  FutexWakeAll(header.events);
}

uint32_t Board::AnnounceSleep() {
  Header& header = *reinterpret_cast<Header*>(memory_);
  header.sleepers.fetch_add(1);
  return header.events.load();
}

void Board::Sleep(uint32_t announced, absl::Duration limit) {
  Header& header = *reinterpret_cast<Header*>(memory_);
  FutexWait(header.events, announced, limit);
  header.sleepers.fetch_sub(1);
}

void Board::CancelSleep() { reinterpret_cast<Header*>(memory_)->sleepers.fetch_sub(1); }

}  // namespace tessera
