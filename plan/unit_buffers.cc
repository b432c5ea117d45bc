#include "plan/unit_buffers.h"

#include <algorithm>

#include "plan/ledger_bytes.h"
#include "plan/ledger_offload.h"

namespace tessera::plan {

UnitBuffers::UnitBuffers(const LedgerRequest& request, const std::vector<UnitSize>& units,
                         int micro_batches)
    : prefetch_units_(request.prefetch_units),
      micro_batches_(micro_batches),
      reduces_each_(request.job.gradient_reduction == GradientReduction::kPerMicroBatch),
      defers_reduction_(request.job.clips_before_reduce) {
  const TrafficRequest& job = request.job;
  const std::vector<UnitOffload> offloads = UnitOffloads(request, units);
  for (size_t i = 0; i < units.size(); ++i) {
    const int d = job.mesh.dp * job.mesh.cp;
    Unit& unit = units_.emplace_back();
    unit.parameter_bytes = AllocatedBytes(units[i].padded_elements(d) * job.element_bytes);
    unit.gradient_bytes = AllocatedBytes(units[i].padded_elements(d) * job.gradient_bytes);
    unit.reduced_bytes = AllocatedBytes(units[i].shard_elements(d) * job.gradient_bytes);
    unit.is_gathered = IsGathered(job, units[i]);
    unit.is_fetched = offloads[i].parameters;
    unit.offloads_gradients = offloads[i].gradients;
    unit.keeps_gradients = job.zero_stage < 2 && !offloads[i].gradients;
  }
}

void UnitBuffers::Take(BigSize bytes) {
  held_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, held_bytes_);
}

int64_t UnitBuffers::Start(Pending pending) {
  pending_.push_back(pending);
  return ++last_;
}

void UnitBuffers::WaitFor(int64_t number) {
  while (!pending_.empty() && last_ - static_cast<int64_t>(pending_.size()) < number) {
    const Pending oldest = pending_.front();
    pending_.pop_front();
    if (oldest.reduced_unit >= 0) FinishReduce(oldest);
  }
}

void UnitBuffers::FinishReduce(const Pending& pending) {
  Unit& unit = units_[pending.reduced_unit];
  if (unit.keeps_gradients) return;
  // Earlier sums are fetched, to be added.
  if (unit.offloads_gradients && !pending.is_first) {
    Take(unit.reduced_bytes);
    held_bytes_ -= unit.reduced_bytes;
  }
  FreeGradients(unit);
}

void UnitBuffers::FreeGradients(Unit& unit) {
  unit.has_gradients = false;
  held_bytes_ -= unit.gradient_bytes;
}

void UnitBuffers::Gather(Unit& unit) {
  unit.has_parameters = true;
  Take(unit.parameter_bytes);
  if (unit.is_fetched) {
    unit.is_fetching = true;
  } else {
    unit.gathering = Start({});
  }
}

void UnitBuffers::AcquireParameters(int index) {
  Unit& unit = units_[index];
  if (!unit.is_gathered && !unit.is_fetched) return;
  if (!unit.has_parameters) Gather(unit);
  if (unit.is_fetching && unit.is_gathered) unit.gathering = Start({});
  unit.is_fetching = false;
  if (unit.is_gathered) WaitFor(unit.gathering);
  ++unit.users;
}

void UnitBuffers::ReleaseParameters(int index) {
  Unit& unit = units_[index];
  if ((!unit.is_gathered && !unit.is_fetched) || --unit.users > 0) return;
  unit.has_parameters = false;
  held_bytes_ -= unit.parameter_bytes;
}

void UnitBuffers::PrefetchParameters(absl::Span<const int> units) {
  for (const int index : units.first(std::min<size_t>(units.size(), prefetch_units_))) {
    Unit& unit = units_[index];
    if ((unit.is_gathered || unit.is_fetched) && !unit.has_parameters) Gather(unit);
  }
}

void UnitBuffers::AcquireGradients(int index) {
  Unit& unit = units_[index];
  WaitFor(unit.reducing);
  if (unit.keeps_gradients || unit.has_gradients) return;
  unit.has_gradients = true;
  Take(unit.gradient_bytes);
}

void UnitBuffers::GradientsReady(int index) {
  Unit& unit = units_[index];
  ++unit.ready;
  if (!reduces_each_ && unit.ready < micro_batches_) {
    if (unit.offloads_gradients) FreeGradients(unit);
    return;
  }
  if (!defers_reduction_) Reduce(index);
}

void UnitBuffers::Reduce(int index) {
  WaitFor(last_);
  units_[index].reducing = Start({index, !reduces_each_ || units_[index].ready == 1});
}

}  // namespace tessera::plan
