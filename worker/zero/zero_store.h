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
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/model/parameter_store.h"
#include "worker/model/units.h"
#include "worker/zero/unit_layout.h"

namespace tessera {

struct ZeroStoreOptions {
  int group_size = 1;                       // of the zero group
  DType parameter_dtype = DType::kFloat32;  // fp32, bf16 or fp16
  DType gradient_dtype = DType::kFloat32;   // parameter_dtype or fp32
  bool has_gradients = true;                // false: for evaluating and generating only
};

// One parameter of the store: units()[unit].parameters[index].
struct ParameterId {
  int unit = 0;
  int index = 0;
};

// Owns the flat buffers; the device outlives it. Used by one thread.
class ZeroStore : public ParameterStore {
 public:
  // Buffers of all units, all 0. RESOURCE_EXHAUSTED from the arena; nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<ZeroStore>> Create(std::vector<UnitSpec> units,
                                                           const ZeroStoreOptions& options,
                                                           Device& device, Stream& stream);

  const std::vector<UnitSpec>& units() const override { return specs_; }
  absl::StatusOr<absl::Span<const Tensor>> AcquireParameters(int unit, Stream& stream) override;
  absl::Status ReleaseParameters(int unit, Stream& stream) override;
  absl::Status PrefetchParameters(int unit, Stream& stream) override;
  absl::StatusOr<absl::Span<const Tensor>> AcquireGradients(int unit, Stream& stream) override;
  absl::Status GradientsReady(int unit, Stream& stream) override;

  // Starts a step: all gradients 0.
  absl::Status ClearGradients(Stream& stream);

  const ZeroStoreOptions& options() const { return options_; }
  // For the optimizer: the unit's flat buffers (size_elements).
  const UnitLayout& layout(int unit) const { return units_[unit].layout; }
  const Tensor& flat_parameters(int unit) const { return units_[unit].parameters; }
  const Tensor& flat_gradients(int unit) const { return units_[unit].gradients; }

  // One parameter's gradient, in its local shape.
  const Tensor& gradient(ParameterId id) const {
    return units_[id.unit].gradient_tensors[id.index];
  }

  // NOT_FOUND: no parameter of this name.
  absl::StatusOr<ParameterId> Find(const std::string& name) const;
  // Elements of the local part of a parameter from `begin` on, set from fp32 values. REQUIRES: in
  // range.
  absl::Status Write(ParameterId id, int64_t begin, absl::Span<const float> values, Stream& stream);

 private:
  struct Unit {
    UnitLayout layout;
    DeviceBuffer parameter_buffer;
    DeviceBuffer gradient_buffer;
    Tensor parameters;                      // flat
    Tensor gradients;                       // flat; null without gradients
    std::vector<Tensor> parameter_tensors;  // views, in the order of the unit's parameters
    std::vector<Tensor> gradient_tensors;
  };

  ZeroStore(std::vector<UnitSpec> specs, const ZeroStoreOptions& options, Device& device)
      : specs_(std::move(specs)), options_(options), device_(device) {}
  absl::Status AddUnit(const UnitSpec& spec, Stream& stream);

  const std::vector<UnitSpec> specs_;
  const ZeroStoreOptions options_;
  Device& device_;
  std::vector<Unit> units_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ZERO_ZERO_STORE_H_
