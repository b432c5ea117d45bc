#include "worker/model/head.h"

#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"
#include "kernels/status_macros.h"

namespace tessera {

HeadActivations HeadActivations::Create(const ModelConfig& config, int64_t rows,
                                        ActivationBuffers& buffers) {
  return {LayerNormActivations::Create(rows, config.hidden_size, buffers),
          buffers.New(DType::kFloat32, {rows, config.vocab_size}, "logits"),
          buffers.New(DType::kFloat32, {rows}, "losses")};
}

absl::Status Head::Forward(const Tensor& input, const HeadTensors& parameters,
                           const HeadActivations& activations, Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.norm, activations.norm, stream));
  MatmulOptions options;
  options.transpose_b = true;
  return Matmul(activations.norm.output, parameters.tokens, activations.logits, options, stream);
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
  MatmulOptions token_gradient;
  token_gradient.transpose_a = true;
  token_gradient.accumulate = true;
  TESSERA_RETURN_IF_ERROR(Matmul(activations.logits, activations.norm.output, gradients.tokens,
                                 token_gradient, stream));
  TESSERA_RETURN_IF_ERROR(Matmul(activations.logits, parameters.tokens, d_norm, {}, stream));
  return norm_.Backward(input, parameters.norm, activations.norm, d_norm, Tensor(), d_input,
                        gradients.norm, stream);
}

}  // namespace tessera
