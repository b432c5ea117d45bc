// Weights and gradients of one rank, each unit one flat buffer; what is sharded depends on the
// zero_stage (ZeRO, Rajbhandari et al., arXiv 1910.02054). This version has stage 0: all whole.
#ifndef TESSERA_WORKER_ZERO_ZERO_STORE_H_
#define TESSERA_WORKER_ZERO_ZERO_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/parameter_store.h"
#include "worker/model/units.h"
#include "worker/zero/unit_layout.h"

namespace tessera {

// Owns the flat buffers; the device outlives it. Used by one thread.
class ZeroStore : public ParameterStore {
 public:
  // Buffers of all units for a zero group of group_size ranks, parameters at their initial values
  // and gradients 0. RESOURCE_EXHAUSTED from the arena; nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<ZeroStore>> Create(std::vector<UnitSpec> units,
                                                           uint64_t init_seed, int group_size,
                                                           Device& device, Stream& stream);

  const std::vector<UnitSpec>& units() const override { return specs_; }
  absl::StatusOr<absl::Span<const Tensor>> AcquireParameters(int unit, Stream& stream) override;
  absl::Status ReleaseParameters(int unit, Stream& stream) override;
  absl::Status PrefetchParameters(int unit, Stream& stream) override;
  absl::StatusOr<absl::Span<const Tensor>> AcquireGradients(int unit, Stream& stream) override;
  absl::Status GradientsReady(int unit, Stream& stream) override;

  // Starts a step: all gradients 0.
  absl::Status ClearGradients(Stream& stream);

  // For the optimizer: the unit's flat buffers (size_elements), fp32.
  const UnitLayout& layout(int unit) const { return units_[unit].layout; }
  const Tensor& flat_parameters(int unit) const { return units_[unit].parameters; }
  const Tensor& flat_gradients(int unit) const { return units_[unit].gradients; }

  // One whole parameter, copied to or from the host. NOT_FOUND: no parameter of this name.
  absl::StatusOr<std::vector<float>> Read(const std::string& name, Stream& stream) const;
  // INVALID_ARGUMENT: values has not the parameter's size.
  absl::Status Write(const std::string& name, const std::vector<float>& values, Stream& stream);

 private:
  struct Unit {
    UnitLayout layout;
    DeviceBuffer parameter_buffer;
    DeviceBuffer gradient_buffer;
    Tensor parameters;                      // flat
    Tensor gradients;                       // flat
    std::vector<Tensor> parameter_tensors;  // views, in the order of the unit's parameters
    std::vector<Tensor> gradient_tensors;
  };

  ZeroStore(std::vector<UnitSpec> specs, Device& device)
      : specs_(std::move(specs)), device_(device) {}
  absl::Status AddUnit(const UnitSpec& spec, uint64_t init_seed, int group_size, Stream& stream);
  absl::StatusOr<Tensor> Find(const std::string& name) const;

  const std::vector<UnitSpec> specs_;
  Device& device_;
  std::vector<Unit> units_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_ZERO_STORE_H_
