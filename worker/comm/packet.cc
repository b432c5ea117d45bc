#include "worker/comm/packet.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status TransferList::Add(absl::StatusOr<std::unique_ptr<Transfer>> transfer) {
  if (!transfer.ok()) return transfer.status();
  transfers_.push_back(*std::move(transfer));
  return absl::OkStatus();
}

absl::StatusOr<bool> TransferList::Test() {
  for (; next_ < transfers_.size(); ++next_) {
    absl::StatusOr<bool> complete = transfers_[next_]->Test();
    if (!complete.ok() || !*complete) return complete;
  }
  return true;
}

Transfer* TransferList::blocker() const {
  return next_ < transfers_.size() ? transfers_[next_].get() : nullptr;
}

absl::Status SendPieces(MessageLink& link, uint64_t channel, const char* data, int64_t size_bytes,
                        TransferList& transfers) {
  for (int64_t begin = 0; begin < size_bytes; begin += kPieceBytes) {
    absl::Status status =
        transfers.Add(link.Send(channel, data + begin, std::min(kPieceBytes, size_bytes - begin)));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RecvPieces(MessageLink& link, uint64_t channel, char* data, int64_t size_bytes,
                        TransferList& transfers) {
  for (int64_t begin = 0; begin < size_bytes; begin += kPieceBytes) {
    absl::Status status =
        transfers.Add(link.Recv(channel, data + begin, std::min(kPieceBytes, size_bytes - begin)));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status OutgoingPacket::Start(MessageLink& link, uint64_t channel, const Posting& posting,
                                   const char* data, int64_t size_bytes) {
  envelope_ = std::make_unique<Envelope>();
  envelope_->posting = posting;
  if (size_bytes <= kInlineBytes) {
    envelope_->inline_bytes = size_bytes;
    if (size_bytes > 0) std::memcpy(envelope_->data.data(), data, size_bytes);
  }
  absl::Status status = transfers_.Add(
      link.Send(channel, envelope_.get(),
                static_cast<int64_t>(offsetof(Envelope, data)) + envelope_->inline_bytes));
  if (!status.ok() || size_bytes <= kInlineBytes) return status;
  return SendPieces(link, channel + 1, data, size_bytes, transfers_);
}

absl::Status IncomingPacket::Start(MessageLink& link, uint64_t channel, Device& device) {
  link_ = &link;
  channel_ = channel;
  device_ = &device;
  envelope_ = std::make_unique<Envelope>();
  auto transfer = link.Recv(channel, envelope_.get(), sizeof(Envelope));
  if (!transfer.ok()) return transfer.status();
  envelope_transfer_ = *std::move(transfer);
  return absl::OkStatus();
}

absl::StatusOr<const Posting*> IncomingPacket::Find() {
  if (!is_open_) {
    absl::StatusOr<bool> complete = envelope_transfer_->Test();
    if (!complete.ok()) return complete.status();
    is_open_ = *complete;
  }
  return is_open_ ? &envelope_->posting : nullptr;
}

absl::Status IncomingPacket::Expect(char* landing, int64_t size_bytes) {
  size_bytes_ = size_bytes;
  if (envelope_->inline_bytes != (size_bytes <= kInlineBytes ? size_bytes : 0)) {
    return absl::InternalError(absl::StrCat("an envelope with ", envelope_->inline_bytes,
                                            " bytes where ", size_bytes, " are due"));
  }
  if (size_bytes <= kInlineBytes) {
    if (landing != nullptr && size_bytes > 0) {
      std::memcpy(landing, envelope_->data.data(), size_bytes);
    }
    return absl::OkStatus();
  }
  if (landing != nullptr) return RecvPieces(*link_, channel_ + 1, landing, size_bytes, landed_);
  absl::StatusOr<DeviceBuffer> staging =
      device_->Allocate(std::min(size_bytes, kStagedPieces * kPieceBytes),
                        MemoryCategory::kCommunication, "staging of a collective");
  if (!staging.ok()) return staging.status();
  staging_ = *std::move(staging);
  for (int piece = 0; piece < kStagedPieces; ++piece) {
    if (absl::Status status = Stage(piece * kPieceBytes); !status.ok()) return status;
  }
  return absl::OkStatus();
}

char* IncomingPacket::StagedAt(int64_t offset_bytes) const {
  const int64_t at = offset_bytes / kPieceBytes % kStagedPieces * kPieceBytes;
  return reinterpret_cast<char*>(staging_.View(DType::kUInt8, {0}, at).address());
}

absl::Status IncomingPacket::Stage(int64_t offset_bytes) {
  if (offset_bytes >= size_bytes_) return absl::OkStatus();
  auto transfer = link_->Recv(channel_ + 1, StagedAt(offset_bytes),
                              std::min(kPieceBytes, size_bytes_ - offset_bytes));
  if (!transfer.ok()) return transfer.status();
  staged_[offset_bytes / kPieceBytes % kStagedPieces] = *std::move(transfer);
  return absl::OkStatus();
}

absl::StatusOr<const char*> IncomingPacket::Piece(int64_t offset_bytes) {
  if (size_bytes_ <= kInlineBytes) return envelope_->data.data() + offset_bytes;
  std::unique_ptr<Transfer>& transfer = staged_[offset_bytes / kPieceBytes % kStagedPieces];
  if (transfer != nullptr) {
    absl::StatusOr<bool> complete = transfer->Test();
    if (!complete.ok()) return complete.status();
    if (!*complete) return nullptr;
    transfer.reset();
  }
  return StagedAt(offset_bytes);
}

absl::Status IncomingPacket::Release(int64_t offset_bytes) {
  if (size_bytes_ <= kInlineBytes) return absl::OkStatus();
  next_bytes_ = offset_bytes + kPieceBytes;
  return Stage(offset_bytes + kStagedPieces * kPieceBytes);
}

Transfer* IncomingPacket::blocker() const {
  if (!is_open_) return envelope_transfer_.get();
  if (Transfer* landing = landed_.blocker()) return landing;
  return staged_[next_bytes_ / kPieceBytes % kStagedPieces].get();
}

}  // namespace tessera
