#include "worker/zero/zero_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/fp32_copy.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

ZeroOptions EffectiveOptions(ZeroOptions options, const Communicator* group) {
  if (group == nullptr || group->size() == 1) options.zero_stage = 0;
  return options;
}

}  // namespace

ZeroStore::ZeroStore(std::vector<UnitSpec> specs, const ZeroOptions& options, Communicator* group,
                     Device& device, const UnitTiers& tiers)
    : specs_(std::move(specs)),
      options_(EffectiveOptions(options, group)),
      tiers_(tiers),
      parameters_(options_, tiers_.parameters, group, queue_, device),
      gradients_(options_, tiers_.gradients, group, queue_, device),
      queue_(group) {}

absl::StatusOr<std::unique_ptr<ZeroStore>> ZeroStore::Create(std::vector<UnitSpec> units,
                                                             const ZeroOptions& options,
                                                             Communicator* group, Device& device,
                                                             Stream& stream,
                                                             const UnitTiers& tiers) {
  std::unique_ptr<ZeroStore> store(new ZeroStore(std::move(units), options, group, device, tiers));
  for (const UnitSpec& spec : store->specs_) {
    const UnitLayout layout = MakeUnitLayout(spec, group == nullptr ? 1 : group->size());
    TESSERA_RETURN_IF_ERROR(store->parameters_.AddUnit(spec, layout, stream));
    if (options.has_gradients) TESSERA_RETURN_IF_ERROR(store->gradients_.AddUnit(spec, layout));
    store->layouts_.push_back(layout);
  }
  for (ArrayTier* tier :
       {tiers.parameters.tier, options.has_gradients ? tiers.gradients.tier : nullptr}) {
    if (tier != nullptr) TESSERA_RETURN_IF_ERROR(tier->Prepare());
  }
  TESSERA_RETURN_IF_ERROR(stream.Synchronize());
  return store;
}

absl::StatusOr<absl::Span<const Tensor>> ZeroStore::AcquireParameters(int unit, Stream& stream) {
  return parameters_.Acquire(unit, stream);
}

absl::Status ZeroStore::ReleaseParameters(int unit, Stream&) { return parameters_.Release(unit); }

absl::Status ZeroStore::PrefetchParameters(absl::Span<const int> units, Stream& stream) {
  return parameters_.Prefetch(units, stream);
}

absl::StatusOr<absl::Span<const Tensor>> ZeroStore::AcquireGradients(int unit, Stream& stream) {
  return gradients_.Acquire(unit, stream);
}

absl::Status ZeroStore::GradientsReady(int unit, Stream& stream) {
  return gradients_.Ready(unit, stream);
}

absl::StatusOr<ParameterId> ZeroStore::Find(const std::string& name) const {
  for (size_t u = 0; u < specs_.size(); ++u) {
    for (size_t i = 0; i < specs_[u].parameters.size(); ++i) {
      if (specs_[u].parameters[i].name == name) {
        return ParameterId{static_cast<int>(u), static_cast<int>(i)};
      }
    }
  }
  return absl::NotFoundError(absl::StrCat("parameter \"", name, "\": no such parameter"));
}

absl::Status ZeroStore::Write(ParameterId id, int64_t begin, absl::Span<const float> values,
                              Stream& stream) {
  const int64_t offset = layouts_[id.unit].slots[id.index].offset_elements + begin;
  const ElementRange here = ElementRange{offset, static_cast<int64_t>(values.size())}.Intersect(
      parameters_.held(id.unit));
  if (here.count == 0) return absl::OkStatus();
  return CopyInFp32(values.subspan(here.begin - offset, here.count),
                    parameters_.Held(id.unit, here), stream);
}

}  // namespace tessera
