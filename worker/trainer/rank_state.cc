#include "worker/trainer/rank_state.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "plan/offload.h"
#include "worker/offload/host_view.h"

namespace tessera {
namespace {

constexpr StateArray kArrays[] = {StateArray::kMaster, StateArray::kExpAvg, StateArray::kExpAvgSq};

// A piece's arrays are on the stream's device or on the host's.
absl::Status CopyToHost(const Tensor& from, uint8_t* to, Stream& stream) {
  if (from.device() == &stream.device()) {
    return stream.device().CopyOut(from, to, from.size_bytes(), stream);
  }
  std::memcpy(to, HostAddress(from), from.size_bytes());
  return absl::OkStatus();
}

absl::Status CopyFromHost(const uint8_t* from, const Tensor& to, Stream& stream) {
  if (to.device() == &stream.device()) {
    return stream.device().CopyIn(from, to.size_bytes(), to, stream);
  }
  std::memcpy(HostAddress(to), from, to.size_bytes());
  return absl::OkStatus();
}

}  // namespace

int64_t RankState::piece_elements() const {
  return plan::StatePieceElements(offload_.options().buffer_bytes);
}

int64_t RankState::StepBytes() const {
  int64_t bytes = 0;
  for (int unit = 0; unit < num_units(); ++unit) {
    bytes += optimizer_.held(unit).count * kNumStateArrays * DTypeSizeBytes(DType::kFloat32);
    if (offload_.TierOfParameters(unit) != plan::Tier::kNvme) continue;
    bytes +=
        store_.parameters().held(unit).count * DTypeSizeBytes(store_.options().parameter_dtype);
  }
  return bytes;
}

absl::Status RankState::CheckSpace() {
  if (!commits_steps()) return absl::OkStatus();
  return offload_.saver()->CheckSpace(StepBytes());
}

absl::Status RankState::Settle() {
  return commits_steps() ? offload_.saver()->Settle() : absl::OkStatus();
}

absl::Status RankState::Begin(int64_t step) {
  return commits_steps() ? offload_.saver()->Begin(step, StepBytes()) : absl::OkStatus();
}

absl::Status RankState::SaveUnit(int unit) {
  StateSaver* saver = offload_.saver();
  if (saver == nullptr || !saver->is_writing() || is_on_nvme(unit)) return absl::OkStatus();
  const int64_t first = optimizer_.held(unit).begin;
  return optimizer_.VisitState(unit, piece_elements(), [&](const StatePiece& piece) {
    TierBuffer buffer = saver->buffers().Acquire();
    uint8_t* to = buffer.bytes().data();
    for (const StateArray array : kArrays) {
      TESSERA_RETURN_IF_ERROR(CopyToHost(piece.of(array), to, stream_));
      to += piece.of(array).size_bytes();
    }
    TESSERA_RETURN_IF_ERROR(stream_.Synchronize());
    const int64_t size = to - buffer.bytes().data();
    return saver->Write(store_.units()[unit].name, kOptimizerKind, first + piece.begin,
                        DType::kFloat32, {kNumStateArrays, piece.count}, size, std::move(buffer));
  });
}

void RankState::StartCommit(const v1::SavedRank& record) {
  if (commits_steps()) offload_.saver()->StartCommit(record.SerializeAsString());
}

absl::Status RankState::SaveAll(const v1::SavedRank& record) {
  TESSERA_ASSIGN_OR_RETURN(StateSaver * saver, offload_.OpenSaver());
  // Suspended again before its first step: what it went on from is still there.
  if (saver->committed_step() == record.step()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(saver->Begin(record.step(), StepBytes()));
  for (int unit = 0; unit < num_units(); ++unit) {
    absl::Status status = SaveUnit(unit);
    if (!status.ok()) {
      saver->Abandon();
      return status;
    }
  }
  saver->StartCommit(record.SerializeAsString());
  return saver->Settle();
}

absl::Status RankState::Forget() { return offload_.saver()->RemoveAll(); }

absl::Status RankState::RemoveAll() {
  return commits_steps() ? offload_.saver()->RemoveAll() : absl::OkStatus();
}

absl::StatusOr<v1::SavedRank> RankState::ReadRecord(StateSaver& saver, int64_t step,
                                                    const v1::MeshCoordinates& coordinates) const {
  for (const TierStep& held : saver.store().steps()) {
    if (held.job != saver.job_uid() || held.step != step) continue;
    v1::SavedRank record;
    if (!record.ParseFromString(held.metadata) || record.format_version() != 1 ||
        record.step() != step ||
        record.coordinates().SerializeAsString() != coordinates.SerializeAsString()) {
      return absl::DataLossError(absl::StrCat("saved step ", step, " of job ", saver.job_uid(),
                                              ": is not of global_rank ", coordinates.global_rank(),
                                              " of this layout"));
    }
    return record;
  }
  return absl::NotFoundError(
      absl::StrCat("saved step ", step, " of job ", saver.job_uid(), ": there is none"));
}

absl::Status RankState::RestoreUnit(StateSaver& saver, int unit) {
  const int64_t first = optimizer_.held(unit).begin;
  TierBuffer buffer = saver.buffers().Acquire();
  return optimizer_.VisitState(unit, piece_elements(), [&](const StatePiece& piece) {
    const int64_t bytes = piece.master.size_bytes();
    const TierKey key{saver.job_uid(), *saver.committed_step(), store_.units()[unit].name,
                      kOptimizerKind, first + piece.begin};
    const absl::Status read =
        saver.store().Read(key, DType::kFloat32, kNumStateArrays * piece.count,
                           buffer.bytes().first(kNumStateArrays * bytes));
    if (!read.ok()) return WithTierReason(read);
    const uint8_t* from = buffer.bytes().data();
    for (const StateArray array : kArrays) {
      TESSERA_RETURN_IF_ERROR(CopyFromHost(from, piece.of(array), stream_));
      from += bytes;
    }
    return stream_.Synchronize();
  });
}

absl::StatusOr<v1::SavedRank> RankState::Restore(int64_t step,
                                                 const v1::MeshCoordinates& coordinates) {
  TESSERA_ASSIGN_OR_RETURN(StateSaver * saver, offload_.OpenSaver());
  TESSERA_ASSIGN_OR_RETURN(v1::SavedRank record, ReadRecord(*saver, step, coordinates));
  TESSERA_RETURN_IF_ERROR(saver->Adopt(step));
  for (int unit = 0; unit < num_units(); ++unit) {
    if (!is_on_nvme(unit)) TESSERA_RETURN_IF_ERROR(RestoreUnit(*saver, unit));
    if (offload_.TierOfParameters(unit) == plan::Tier::kNvme) continue;  // they are there
    TESSERA_RETURN_IF_ERROR(optimizer_.RestoreParameters(unit, stream_));
  }
  return record;
}

}  // namespace tessera
