#include "worker/offload/nvme_array_tier.h"

#include <algorithm>
#include <utility>

#include "kernels/status_macros.h"
#include "worker/offload/host_view.h"

namespace tessera {

absl::Status NvmeArrayTier::AddUnit(int unit, const std::string& name, DType dtype,
                                    int64_t elements) {
  Unit& added = units_[unit];
  added.name = name;
  added.elements = elements;
  added.piece_elements = saver_.buffers().buffer_bytes() / DTypeSizeBytes(dtype);
  return absl::OkStatus();
}

absl::Status NvmeArrayTier::Store(int index, const Tensor& from, Stream& stream) {
  const Unit& unit = units_.at(index);
  for (int64_t begin = 0; begin < from.num_elements(); begin += unit.piece_elements) {
    const int64_t count = std::min(unit.piece_elements, from.num_elements() - begin);
    const Tensor piece = from.Slice(begin, count);
    TierBuffer buffer;
    {
      const TierWait wait(saver_.meter().of(plan::Tier::kNvme));
      buffer = saver_.buffers().Acquire();
    }
    TESSERA_RETURN_IF_ERROR(
        stream.device().CopyOut(piece, buffer.bytes().data(), piece.size_bytes(), stream));
    TESSERA_RETURN_IF_ERROR(stream.Synchronize());
    TESSERA_RETURN_IF_ERROR(saver_.Write(unit.name, kParametersKind, begin, from.dtype(), {count},
                                         piece.size_bytes(), std::move(buffer)));
  }
  return absl::OkStatus();
}

absl::Status NvmeArrayTier::StartFetch(int index, const Tensor& to, Stream& stream) {
  Unit& unit = units_.at(index);
  TESSERA_RETURN_IF_ERROR(saver_.Settle());
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());  // nobody else uses the memory any more
  TESSERA_ASSIGN_OR_RETURN(unit.to, HostView(to, *to.device()));
  unit.next = 0;
  StartReads(unit);
  return absl::OkStatus();
}

void NvmeArrayTier::StartReads(Unit& unit) {
  while (unit.reads.size() < kDepth && unit.next < unit.to.num_elements()) {
    const int64_t count = std::min(unit.piece_elements, unit.to.num_elements() - unit.next);
    const Tensor piece = unit.to.Slice(unit.next, count);
    const TierKey key{saver_.job_uid(), *saver_.committed_step(), unit.name, kParametersKind,
                      unit.next};
    unit.reads.push_back(TierTransfer::Read(
        saver_.store(), key, piece.dtype(), count,
        {static_cast<uint8_t*>(HostAddress(piece)), static_cast<size_t>(piece.size_bytes())}));
    saver_.meter().of(plan::Tier::kNvme).read_bytes += piece.size_bytes();
    unit.next += count;
  }
}

absl::Status NvmeArrayTier::FinishFetch(int index) {
  Unit& unit = units_.at(index);
  while (!unit.reads.empty()) {
    TierTransfer read = std::move(unit.reads.front());
    unit.reads.pop_front();
    TierCounts& counts = saver_.meter().of(plan::Tier::kNvme);
    if (!read.is_done()) ++counts.late_reads;
    absl::Status status = read.Wait(counts);
    if (!status.ok()) return WithTierReason(status);
    StartReads(unit);
  }
  unit.to = Tensor();
  return absl::OkStatus();
}

}  // namespace tessera
