#include "worker/model/head.h"

#include "kernels/cross_entropy.h"
#include "kernels/status_macros.h"
#include "worker/model/linear.h"

namespace tessera {
namespace {

LinearTensors TokenMap(const Tensor& tokens) { return {tokens, Tensor(), WeightLayout::kOutIn}; }

}  // namespace

HeadActivations HeadActivations::Create(const ModelConfig& config, int64_t rows,
                                        ActivationBuffers& buffers) {
  return {NormActivations::Create(config, rows, buffers),
          buffers.New({rows, config.vocab_size}, "logits"),
          buffers.New(DType::kFloat32, {rows}, "losses")};
}

absl::Status Head::Forward(const Tensor& input, const HeadTensors& parameters,
                           const HeadActivations& activations, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.norm, activations.norm, stream));
  return Linear::Forward(activations.norm.output, TokenMap(parameters.tokens), Tensor(),
                         activations.logits, stream);
}

absl::Status Head::Loss(const Tensor& targets, float gradient_scale, bool backward,
                        const HeadActivations& activations, Stream& stream) {
  CrossEntropyOptions options;
  options.num_classes = activations.logits.shape().last_dim();
  options.gradient_scale = gradient_scale;
  options.overwrite_logits = backward;
  return CrossEntropy(activations.logits, targets, options, activations.losses, stream);
}

absl::Status Head::Backward(const Tensor& input, const HeadTensors& parameters,
                            const HeadActivations& activations, const Tensor& d_norm,
                            const Tensor& d_input, const HeadTensors& gradients,
                            Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(Linear::Backward(activations.norm.output, TokenMap(parameters.tokens),
                                           activations.logits, Linear::InputGradient::kWrite,
                                           d_norm, TokenMap(gradients.tokens), stream));
  return norm_.Backward(input, parameters.norm, activations.norm, d_norm, Tensor(), d_input,
                        gradients.norm, stream);
}

}  // namespace tessera
