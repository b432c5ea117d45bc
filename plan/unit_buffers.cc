#include "plan/unit_buffers.h"

#include <algorithm>

#include "plan/ledger_bytes.h"

namespace tessera::plan {
namespace {

constexpr int kNoUnit = -1;

}  // namespace

UnitBuffers::UnitBuffers(const LedgerRequest& request, const std::vector<UnitSize>& units,
                         int micro_batches)
    : prefetch_units_(request.prefetch_units),
      micro_batches_(micro_batches),
      reduces_each_(request.job.gradient_reduction == GradientReduction::kPerMicroBatch),
      defers_reduction_(request.job.clips_before_reduce),
      keeps_gradients_(request.job.zero_stage < 2) {
  const TrafficRequest& job = request.job;
  for (const UnitSize& size : units) {
    const BigSize elements = size.padded_elements(job.mesh.dp * job.mesh.cp);
    Unit& unit = units_.emplace_back();
    unit.parameter_bytes = AllocatedBytes(elements * job.element_bytes);
    unit.gradient_bytes = AllocatedBytes(elements * job.gradient_bytes);
    unit.is_gathered = IsGathered(job, size);
  }
}

void UnitBuffers::Take(BigSize bytes) {
  held_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, held_bytes_);
}

int64_t UnitBuffers::Start(int reduced_unit) {
  pending_.push_back(reduced_unit);
  return ++last_;
}

void UnitBuffers::WaitFor(int64_t number) {
  while (!pending_.empty() && last_ - static_cast<int64_t>(pending_.size()) < number) {
    const int reduced = pending_.front();
    pending_.pop_front();
    if (reduced == kNoUnit) continue;
    units_[reduced].has_gradients = false;
    held_bytes_ -= units_[reduced].gradient_bytes;
  }
}

void UnitBuffers::Gather(Unit& unit) {
  unit.has_parameters = true;
  Take(unit.parameter_bytes);
  unit.gathering = Start(kNoUnit);
}

void UnitBuffers::AcquireParameters(int index) {
  Unit& unit = units_[index];
  if (!unit.is_gathered) return;
  if (!unit.has_parameters) Gather(unit);
  WaitFor(unit.gathering);
  ++unit.users;
}

void UnitBuffers::ReleaseParameters(int index) {
  Unit& unit = units_[index];
  if (!unit.is_gathered || --unit.users > 0) return;
  unit.has_parameters = false;
  held_bytes_ -= unit.parameter_bytes;
}

void UnitBuffers::PrefetchParameters(absl::Span<const int> units) {
  for (const int index : units.first(std::min<size_t>(units.size(), prefetch_units_))) {
    Unit& unit = units_[index];
    if (unit.is_gathered && !unit.has_parameters) Gather(unit);
  }
}

void UnitBuffers::AcquireGradients(int index) {
  if (keeps_gradients_) return;
  Unit& unit = units_[index];
  WaitFor(unit.reducing);
  if (unit.has_gradients) return;
  unit.has_gradients = true;
  Take(unit.gradient_bytes);
}

void UnitBuffers::GradientsReady(int index) {
  ++units_[index].ready;
  if (!reduces_each_ && units_[index].ready < micro_batches_) return;
  if (!keeps_gradients_ && !defers_reduction_) Reduce(index);
}

void UnitBuffers::Reduce(int index) {
  WaitFor(last_);
  units_[index].reducing = Start(index);
}

}  // namespace tessera::plan
