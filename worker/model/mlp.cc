#include "worker/model/mlp.h"

#include <array>

#include "kernels/gelu.h"
#include "kernels/status_macros.h"
#include "kernels/swiglu.h"
#include "worker/tensor_parallel/column_parallel_linear.h"
#include "worker/tensor_parallel/row_parallel_linear.h"

namespace tessera {
namespace {

// up, and gate where there is one: up first, as a gated unit's weights may be absent.
struct EnteringMaps {
  std::array<ColumnParallelLinear::Map, 2> maps;
  size_t count;

  EnteringMaps(const MlpTensors& tensors, const Tensor& up, const Tensor& gate)
      : maps{{{tensors.up, up}, {tensors.gate, gate}}}, count(tensors.is_gated() ? 2 : 1) {}
  absl::Span<const ColumnParallelLinear::Map> span() const { return {maps.data(), count}; }
};

}  // namespace

MlpActivations MlpActivations::Create(const ModelConfig& local, int64_t rows,
                                      ActivationBuffers& buffers) {
  const Shape shape{rows, local.intermediate_size};
  MlpActivations activations;
  if (local.family == ModelFamily::kLlama) activations.gate = buffers.New(shape, "mlp gate");
  activations.up = buffers.New(shape, "mlp up");
  activations.hidden = buffers.New(shape, "mlp hidden");
  return activations;
}

MlpGradients MlpGradients::Create(const ModelConfig& local, int64_t rows,
                                  ActivationBuffers& buffers) {
  const Shape shape{rows, local.intermediate_size};
  MlpGradients gradients;
  gradients.up = buffers.New(shape, "mlp d_up");
  if (local.family == ModelFamily::kLlama) gradients.gate = buffers.New(shape, "mlp d_gate");
  return gradients;
}

absl::Status Mlp::Forward(const Tensor& input, const MlpTensors& parameters, const Tensor& residual,
                          const MlpActivations& activations, const ParallelScratch& scratch,
                          const Tensor& output, const TensorParallel& tp, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(ForwardHidden(input, parameters, activations, scratch, tp, stream));
  return RowParallelLinear::Forward(activations.hidden, parameters.projection, residual,
                                    scratch.partial, output, tp, stream);
}

absl::Status Mlp::ForwardHidden(const Tensor& input, const MlpTensors& parameters,
                                const MlpActivations& activations, const ParallelScratch& scratch,
                                const TensorParallel& tp, Stream& stream) {
  const EnteringMaps maps(parameters, activations.up, activations.gate);
  TESSERA_RETURN_IF_ERROR(
      ColumnParallelLinear::Forward(input, maps.span(), scratch.gathered, tp, stream));
  if (!parameters.is_gated()) return GeluForward(activations.up, activations.hidden, stream);
  return SwiGluForward(activations.gate, activations.up, activations.hidden, stream);
}

absl::Status Mlp::BackwardInput(const MlpTensors& parameters, const MlpActivations& activations,
                                const Tensor& whole_d_output, const MlpGradients& d_activations,
                                const ParallelScratch& scratch, const Tensor& d_input,
                                const TensorParallel& tp, Stream& stream) {
  const Tensor& d_hidden = d_activations.up;
  TESSERA_RETURN_IF_ERROR(
      RowParallelLinear::BackwardInput(parameters.projection, whole_d_output, d_hidden, stream));
  if (parameters.is_gated()) {
    TESSERA_RETURN_IF_ERROR(SwiGluBackward(activations.gate, activations.up, d_hidden,
                                           d_activations.gate, d_activations.up, stream));
  } else {
    TESSERA_RETURN_IF_ERROR(GeluBackward(activations.up, d_hidden, d_activations.up, stream));
  }
  const EnteringMaps maps(parameters, d_activations.up, d_activations.gate);
  return ColumnParallelLinear::BackwardInput(maps.span(), scratch.partial, d_input, tp, stream);
}

absl::Status Mlp::BackwardWeight(const Tensor& input, const MlpActivations& activations,
                                 const Tensor& whole_d_output, const MlpGradients& d_activations,
                                 const ParallelScratch& scratch, const MlpTensors& gradients,
                                 const TensorParallel& tp, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(RowParallelLinear::BackwardWeight(activations.hidden, whole_d_output,
                                                            gradients.projection, stream));
  const EnteringMaps maps(gradients, d_activations.up, d_activations.gate);
  return ColumnParallelLinear::BackwardWeight(input, maps.span(), scratch.gathered, tp, stream);
}

}  // namespace tessera
