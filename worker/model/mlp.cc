#include "worker/model/mlp.h"

#include "kernels/gelu.h"
#include "kernels/status_macros.h"
#include "kernels/swiglu.h"

namespace tessera {

MlpActivations MlpActivations::Create(const ModelConfig& config, int64_t rows,
                                      ActivationBuffers& buffers) {
  const Shape shape{rows, config.intermediate_size};
  MlpActivations activations;
  if (config.family == ModelFamily::kLlama) activations.gate = buffers.New(shape, "mlp gate");
  activations.up = buffers.New(shape, "mlp up");
  activations.hidden = buffers.New(shape, "mlp hidden");
  return activations;
}

MlpScratch MlpScratch::Create(const ModelConfig& config, int64_t rows, bool backward,
                              ActivationBuffers& buffers) {
  const Shape shape{rows, config.intermediate_size};
  MlpScratch scratch;
  if (!backward) return scratch;
  scratch.d_hidden = buffers.New(shape, "mlp d_hidden");
  if (config.family == ModelFamily::kLlama) scratch.d_gate = buffers.New(shape, "mlp d_gate");
  return scratch;
}

absl::Status Mlp::Forward(const Tensor& input, const MlpTensors& parameters, const Tensor& residual,
                          const MlpActivations& activations, const Tensor& output, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(ForwardHidden(input, parameters, activations, stream));
  return Linear::Forward(activations.hidden, parameters.projection, residual, output, stream);
}

absl::Status Mlp::ForwardHidden(const Tensor& input, const MlpTensors& parameters,
                                const MlpActivations& activations, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, parameters.up, Tensor(), activations.up, stream));
  if (!parameters.is_gated()) return GeluForward(activations.up, activations.hidden, stream);
  TESSERA_RETURN_IF_ERROR(
      Linear::Forward(input, parameters.gate, Tensor(), activations.gate, stream));
  return SwiGluForward(activations.gate, activations.up, activations.hidden, stream);
}

absl::Status Mlp::Backward(const Tensor& input, const MlpTensors& parameters,
                           const MlpActivations& activations, const Tensor& d_output,
                           const MlpScratch& scratch, const Tensor& d_input,
                           const MlpTensors& gradients, Stream& stream) {
  using InputGradient = Linear::InputGradient;
  const Tensor& d_hidden = scratch.d_hidden;
  TESSERA_RETURN_IF_ERROR(Linear::Backward(activations.hidden, parameters.projection, d_output,
                                           InputGradient::kWrite, d_hidden, gradients.projection,
                                           stream));
  if (!parameters.is_gated()) {
    TESSERA_RETURN_IF_ERROR(GeluBackward(activations.up, d_hidden, d_hidden, stream));
    return Linear::Backward(input, parameters.up, d_hidden, InputGradient::kWrite, d_input,
                            gradients.up, stream);
  }
  TESSERA_RETURN_IF_ERROR(
      SwiGluBackward(activations.gate, activations.up, d_hidden, scratch.d_gate, d_hidden, stream));
  TESSERA_RETURN_IF_ERROR(Linear::Backward(input, parameters.up, d_hidden, InputGradient::kWrite,
                                           d_input, gradients.up, stream));
  return Linear::Backward(input, parameters.gate, scratch.d_gate, InputGradient::kAdd, d_input,
                          gradients.gate, stream);
}

}  // namespace tessera
