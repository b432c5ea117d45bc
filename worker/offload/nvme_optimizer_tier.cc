#include "worker/offload/nvme_optimizer_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "plan/offload.h"
#include "worker/offload/host_view.h"

namespace tessera {
namespace {

int64_t PieceBytes(int64_t elements) {
  return elements * kNumStateArrays * DTypeSizeBytes(DType::kFloat32);
}

}  // namespace

NvmeOptimizerTier::NvmeOptimizerTier(StateSaver& saver)
    : saver_(saver),
      piece_elements_(plan::StatePieceElements(saver.buffers().buffer_bytes())),
      most_ahead_(std::max(saver.buffers().count() / 2, 1)) {}

absl::Status NvmeOptimizerTier::AddUnit(int unit, const std::string& name, int64_t first,
                                        int64_t elements) {
  units_[unit] = {name, first, elements, static_cast<int>(pieces_.size())};
  for (int64_t begin = 0; begin < elements; begin += piece_elements_) {
    pieces_.push_back({unit, begin, std::min(piece_elements_, elements - begin)});
  }
  return absl::OkStatus();
}

StatePiece NvmeOptimizerTier::ViewOf(const Piece& piece, const TierBuffer& buffer) const {
  const Tensor all = buffer.View(DType::kFloat32, {kNumStateArrays * piece.count});
  return {piece.begin, piece.count, all.Slice(0, piece.count), all.Slice(piece.count, piece.count),
          all.Slice(2 * piece.count, piece.count)};
}

TierTransfer NvmeOptimizerTier::StartReadOf(const Piece& piece, const TierBuffer& buffer) {
  const Unit& unit = units_.at(piece.unit);
  const TierKey key{saver_.job_uid(), *saver_.committed_step(), unit.name, kOptimizerKind,
                    unit.first + piece.begin};
  return TierTransfer::Read(saver_.store(), key, DType::kFloat32, kNumStateArrays * piece.count,
                            buffer.bytes().first(PieceBytes(piece.count)));
}

absl::Status NvmeOptimizerTier::WriteOf(const Piece& piece, TierBuffer buffer) {
  const Unit& unit = units_.at(piece.unit);
  return saver_.Write(unit.name, kOptimizerKind, unit.first + piece.begin, DType::kFloat32,
                      {kNumStateArrays, piece.count}, PieceBytes(piece.count), std::move(buffer));
}

void NvmeOptimizerTier::FillAhead() {
  while (ahead_.size() < most_ahead_ && next_ + ahead_.size() < pieces_.size()) {
    ReadAhead added;
    added.buffer = saver_.buffers().TryAcquire();
    if (added.buffer.is_null()) {
      if (!ahead_.empty()) return;
      const TierWait wait(saver_.meter().of(plan::Tier::kNvme));
      added.buffer = saver_.buffers().Acquire();
    }
    added.read = StartReadOf(pieces_[next_ + ahead_.size()], added.buffer);
    ahead_.push_back(std::move(added));
  }
}

void NvmeOptimizerTier::DropAhead() {
  ahead_.clear();
  next_ = 0;
}

absl::Status NvmeOptimizerTier::StartPass() {
  TESSERA_RETURN_IF_ERROR(saver_.Settle());
  open_ = -1;
  open_buffer_.Release();
  FillAhead();
  return absl::OkStatus();
}

absl::Status NvmeOptimizerTier::Visit(int unit, Access access,
                                      absl::FunctionRef<absl::Status(const StatePiece&)> visit) {
  const int first = units_.at(unit).first_piece;
  if (next_ != first) DropAhead();
  next_ = first;
  for (; next_ < static_cast<int>(pieces_.size()) && pieces_[next_].unit == unit;) {
    FillAhead();
    ReadAhead current = std::move(ahead_.front());
    ahead_.pop_front();
    const Piece& piece = pieces_[next_++];
    TierCounts& counts = saver_.meter().of(plan::Tier::kNvme);
    counts.read_bytes += PieceBytes(piece.count);
    if (!current.read.is_done()) ++counts.late_reads;
    absl::Status status = current.read.Wait(counts);
    if (!status.ok()) return WithTierReason(status);
    TESSERA_RETURN_IF_ERROR(visit(ViewOf(piece, current.buffer)));
    if (access == Access::kUpdate) {
      TESSERA_RETURN_IF_ERROR(WriteOf(piece, std::move(current.buffer)));
    }
  }
  return absl::OkStatus();
}

absl::Status NvmeOptimizerTier::FinishPass() {
  DropAhead();
  return absl::OkStatus();
}

int NvmeOptimizerTier::PieceAt(int unit, int64_t begin) const {
  return units_.at(unit).first_piece + static_cast<int>(begin / piece_elements_);
}

absl::Status NvmeOptimizerTier::Read(StateArray array, int unit, int64_t begin,
                                     absl::Span<float> values) {
  TESSERA_RETURN_IF_ERROR(saver_.Settle());
  while (!values.empty()) {
    const int index = PieceAt(unit, begin);
    const Piece& piece = pieces_[index];
    if (open_ != index || open_step_ != saver_.committed_step()) {
      open_ = -1;
      if (open_buffer_.is_null()) open_buffer_ = saver_.buffers().Acquire();
      absl::Status status =
          StartReadOf(piece, open_buffer_).Wait(saver_.meter().of(plan::Tier::kNvme));
      if (!status.ok()) return WithTierReason(status);
      open_ = index;
      open_step_ = *saver_.committed_step();
    }
    const int64_t skip = begin - piece.begin;
    const int64_t count = std::min<int64_t>(values.size(), piece.count - skip);
    const Tensor tensor = ViewOf(piece, open_buffer_).of(array);
    std::copy_n(static_cast<const float*>(HostAddress(tensor)) + skip, count, values.data());
    values.remove_prefix(count);
    begin += count;
  }
  return absl::OkStatus();
}

// Of pieces before this one; what is open is written, and what nobody wrote is 0.
absl::Status NvmeOptimizerTier::FlushUpTo(int piece) {
  for (; written_ < piece; ++written_) {
    if (open_ != written_) {
      open_buffer_ = saver_.buffers().Acquire();
      std::memset(open_buffer_.bytes().data(), 0, PieceBytes(pieces_[written_].count));
    }
    open_ = -1;
    TESSERA_RETURN_IF_ERROR(WriteOf(pieces_[written_], std::move(open_buffer_)));
  }
  return absl::OkStatus();
}

absl::Status NvmeOptimizerTier::WriteMaster(int unit, int64_t begin,
                                            absl::Span<const float> values) {
  while (!values.empty()) {
    const int index = PieceAt(unit, begin);
    if (!saver_.is_writing() || index < written_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "unit ", units_.at(unit).name, ", element ", begin,
          ": weights on the nvme tier are set once, in forward order, before the first step"));
    }
    if (open_ != index) {
      TESSERA_RETURN_IF_ERROR(FlushUpTo(index));
      open_buffer_ = saver_.buffers().Acquire();
      std::memset(open_buffer_.bytes().data(), 0, PieceBytes(pieces_[index].count));
      open_ = index;
    }
    const Piece& piece = pieces_[index];
    const int64_t skip = begin - piece.begin;
    const int64_t count = std::min<int64_t>(values.size(), piece.count - skip);
    const Tensor master = ViewOf(piece, open_buffer_).master;
    std::copy_n(values.data(), count, static_cast<float*>(HostAddress(master)) + skip);
    values.remove_prefix(count);
    begin += count;
  }
  return absl::OkStatus();
}

absl::Status NvmeOptimizerTier::FinishWrites() {
  absl::Status status = FlushUpTo(static_cast<int>(pieces_.size()));
  written_ = 0;
  return status;
}

}  // namespace tessera
