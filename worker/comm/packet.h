// One posting with its data, on its way to or from a member that is reached through messages. The
// posting goes first, in an envelope: only where both agree on the size is the data received.
#ifndef TESSERA_WORKER_COMM_PACKET_H_
#define TESSERA_WORKER_COMM_PACKET_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/comm/board.h"
#include "worker/comm/message_link.h"

namespace tessera {

// Data larger than this travels, is received and is reduced in pieces; mapped memory is entered for
// as much at a time. So an abort is seen between pieces, and staging memory is bounded.
inline constexpr int64_t kPieceBytes = 1 << 20;
// Data of up to this travels in the envelope, which saves a round trip.
inline constexpr int64_t kInlineBytes = 4096;

// Transfers that are awaited together. Used by one thread.
class TransferList {
 public:
  absl::Status Add(absl::StatusOr<std::unique_ptr<Transfer>> transfer);
  // True once all are complete.
  absl::StatusOr<bool> Test();
  Transfer* blocker() const;  // the first incomplete one, or null
  void Clear() { transfers_.clear(); }

 private:
  std::vector<std::unique_ptr<Transfer>> transfers_;
  size_t next_ = 0;
};

// Sends or receives `size_bytes` as messages of at most kPieceBytes.
absl::Status SendPieces(MessageLink& link, uint64_t channel, const char* data, int64_t size_bytes,
                        TransferList& transfers);
absl::Status RecvPieces(MessageLink& link, uint64_t channel, char* data, int64_t size_bytes,
                        TransferList& transfers);

struct Envelope {
  Posting posting;
  int64_t inline_bytes = 0;
  std::array<char, kInlineBytes> data;
};

// A packet uses `channel` for its envelope and the next one for its data; both ends give the same.
class OutgoingPacket {
 public:
  // data stays unchanged until Test is true or the packet is destroyed.
  absl::Status Start(MessageLink& link, uint64_t channel, const Posting& posting, const char* data,
                     int64_t size_bytes);
  absl::StatusOr<bool> Test() { return transfers_.Test(); }
  Transfer* blocker() const { return transfers_.blocker(); }

 private:
  std::unique_ptr<Envelope> envelope_;
  TransferList transfers_;  // after what it reads from
};

class IncomingPacket {
 public:
  // Staging memory comes from `device`, in category kCommunication.
  absl::Status Start(MessageLink& link, uint64_t channel, Device& device);
  // What the sender posted; null until it is there.
  absl::StatusOr<const Posting*> Find();
  // Once agreed: size_bytes follow, to `landing` or, where null, piece by piece to staging memory.
  absl::Status Expect(char* landing, int64_t size_bytes);
  // The staged piece that starts at offset_bytes, a multiple of kPieceBytes; null until it is
  // there. Pieces are taken in order, each until Release.
  absl::StatusOr<const char*> Piece(int64_t offset_bytes);
  absl::Status Release(int64_t offset_bytes);
  // True once the data is in `landing`.
  absl::StatusOr<bool> Test() { return landed_.Test(); }
  Transfer* blocker() const;

 private:
  static constexpr int kStagedPieces = 2;  // one arrives while another is reduced
  absl::Status Stage(int64_t offset_bytes);
  char* StagedAt(int64_t offset_bytes) const;

  MessageLink* link_ = nullptr;
  Device* device_ = nullptr;
  uint64_t channel_ = 0;
  int64_t size_bytes_ = 0;
  int64_t next_bytes_ = 0;  // offset of the piece to be taken next
  bool is_open_ = false;    // the envelope has arrived
  std::unique_ptr<Envelope> envelope_;
  DeviceBuffer staging_;
  // After the memory that they write to.
  std::unique_ptr<Transfer> envelope_transfer_;
  std::array<std::unique_ptr<Transfer>, kStagedPieces> staged_;
  TransferList landed_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_PACKET_H_
