#include "worker/offload/swap_array_tier.h"

#include <algorithm>
#include <utility>

#include "kernels/status_macros.h"
#include "worker/offload/host_view.h"
#include "worker/offload/state_saver.h"

namespace tessera {
namespace {

absl::Span<uint8_t> BytesOf(const Tensor& tensor) {
  return {static_cast<uint8_t*>(HostAddress(tensor)), static_cast<size_t>(tensor.size_bytes())};
}

}  // namespace

absl::Status SwapArrayTier::AddUnit(int index, const std::string& /*name*/, DType dtype,
                                    int64_t elements) {
  Unit& unit = units_[index];
  unit.first_slot = static_cast<int>(slot_size_bytes_.size());
  unit.piece_elements = buffers_.buffer_bytes() / DTypeSizeBytes(dtype);
  for (int64_t begin = 0; begin < elements; begin += unit.piece_elements) {
    slot_size_bytes_.push_back(std::min(unit.piece_elements, elements - begin) *
                               DTypeSizeBytes(dtype));
    unit.writes.emplace_back();
  }
  return absl::OkStatus();
}

absl::Status SwapArrayTier::Prepare() {
  SwapFileOptions options;
  options.path = folder_;
  options.slot_size_bytes = slot_size_bytes_;
  absl::StatusOr<std::unique_ptr<SwapFile>> file = SwapFile::Open(options);
  if (!file.ok()) return WithTierReason(file.status());
  file_ = *std::move(file);
  return absl::OkStatus();
}

absl::Status SwapArrayTier::FinishWrite(Unit& unit, int64_t piece) {
  return WithTierReason(unit.writes[piece].Wait(counts()));
}

absl::Status SwapArrayTier::Store(int index, const Tensor& from, Stream& stream) {
  Unit& unit = units_.at(index);
  for (int64_t piece = 0, begin = 0; begin < from.num_elements();
       ++piece, begin += unit.piece_elements) {
    const int64_t count = std::min(unit.piece_elements, from.num_elements() - begin);
    const Tensor part = from.Slice(begin, count);
    TESSERA_RETURN_IF_ERROR(FinishWrite(unit, piece));
    auto buffer = std::make_shared<TierBuffer>();
    {
      const TierWait wait(counts());
      *buffer = buffers_.Acquire();
    }
    const absl::Span<uint8_t> bytes = buffer->bytes().first(part.size_bytes());
    TESSERA_RETURN_IF_ERROR(stream.device().CopyOut(part, bytes.data(), part.size_bytes(), stream));
    TESSERA_RETURN_IF_ERROR(stream.Synchronize());
    counts().written_bytes += part.size_bytes();
    const int slot = unit.first_slot + static_cast<int>(piece);
    unit.writes[piece] = TierTransfer::Start([&](const TierTransfer::Done& done) {
      return file_->StartWrite(slot, bytes, [buffer, done](absl::Status status) {
        buffer->Release();
        done(std::move(status));
      });
    });
  }
  return absl::OkStatus();
}

absl::Status SwapArrayTier::StartFetch(int index, const Tensor& to, Stream& stream) {
  Unit& unit = units_.at(index);
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());  // nobody else uses the memory any more
  TESSERA_ASSIGN_OR_RETURN(unit.to, HostView(to, *to.device()));
  unit.next = 0;
  return StartReads(unit);
}

absl::Status SwapArrayTier::StartReads(Unit& unit) {
  while (unit.reads.size() < kDepth && unit.next < unit.to.num_elements()) {
    const int64_t piece = unit.next / unit.piece_elements;
    const int64_t count = std::min(unit.piece_elements, unit.to.num_elements() - unit.next);
    TESSERA_RETURN_IF_ERROR(FinishWrite(unit, piece));
    const Tensor part = unit.to.Slice(unit.next, count);
    const int slot = unit.first_slot + static_cast<int>(piece);
    unit.reads.push_back(TierTransfer::Start([&](const TierTransfer::Done& done) {
      return file_->StartRead(slot, BytesOf(part), done);
    }));
    counts().read_bytes += part.size_bytes();
    unit.next += count;
  }
  return absl::OkStatus();
}

absl::Status SwapArrayTier::FinishFetch(int index) {
  Unit& unit = units_.at(index);
  while (!unit.reads.empty()) {
    TierTransfer read = std::move(unit.reads.front());
    unit.reads.pop_front();
    if (!read.is_done()) ++counts().late_reads;
    TESSERA_RETURN_IF_ERROR(WithTierReason(read.Wait(counts())));
    TESSERA_RETURN_IF_ERROR(StartReads(unit));
  }
  unit.to = Tensor();
  return absl::OkStatus();
}

}  // namespace tessera
