// The interface through which a model asks for weights and hands over gradients. worker/zero
// implements it; where the weights are between two calls is the store's business.
#ifndef TESSERA_WORKER_MODEL_PARAMETER_STORE_H_
#define TESSERA_WORKER_MODEL_PARAMETER_STORE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "worker/model/units.h"

namespace tessera {

// Used by one thread. Tensors are this rank's parts of parameters in the order and local shapes of
// units(), contiguous, on the stream's device.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  virtual const std::vector<UnitSpec>& units() const = 0;

  // The unit's weights, valid until as many calls of ReleaseParameters. May communicate: all ranks
  // of the zero group ask for the same units in the same order.
  virtual absl::StatusOr<absl::Span<const Tensor>> AcquireParameters(int unit, Stream& stream) = 0;
  virtual absl::Status ReleaseParameters(int unit, Stream& stream) = 0;
  // These units will be asked for next, in this order. The same on all ranks of the zero group.
  virtual absl::Status PrefetchParameters(absl::Span<const int> units, Stream& stream) = 0;

  // Where the model adds (+=) this micro-batch's gradients of the unit; valid until GradientsReady.
  virtual absl::StatusOr<absl::Span<const Tensor>> AcquireGradients(int unit, Stream& stream) = 0;
  // Nothing more will be added in this micro-batch. Once per unit and micro-batch, in an order that
  // is the same on all ranks.
  virtual absl::Status GradientsReady(int unit, Stream& stream) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_PARAMETER_STORE_H_
