#include "worker/model/head.h"

#include "kernels/status_macros.h"
#include "worker/tensor_parallel/column_parallel_linear.h"

namespace tessera {
namespace {

LinearTensors TokenMap(const Tensor& tokens) { return {tokens, Tensor(), WeightLayout::kOutIn}; }

}  // namespace

HeadActivations HeadActivations::Create(const ModelConfig& local, const TensorParallelLayout& tp,
                                        int64_t rows, int64_t shard_rows,
                                        ActivationBuffers& buffers) {
  auto fp32 = [&](Shape shape, absl::string_view what) {
    return buffers.New(DType::kFloat32, shape, what);
  };
  HeadActivations activations;
  activations.norm = NormActivations::Create(local, shard_rows, buffers);
  activations.logits = buffers.New({rows, local.vocab_size}, "logits");
  activations.losses = fp32({rows}, "losses");
  if (tp.tp_size > 1) {
    activations.cross_entropy = {fp32({3, rows}, "cross-entropy statistics"),
                                 fp32({3, tp.tp_size, rows}, "cross-entropy statistics"),
                                 fp32({rows}, "log-sum-exp of logits")};
  }
  return activations;
}

absl::Status Head::Forward(const Tensor& input, const HeadTensors& parameters,
                           const HeadActivations& activations, const ParallelScratch& scratch,
                           Stream& stream) const {
  TESSERA_RETURN_IF_ERROR(norm_.Forward(input, parameters.norm, activations.norm, stream));
  const ColumnParallelLinear::Map map{TokenMap(parameters.tokens), activations.logits};
  return ColumnParallelLinear::Forward(activations.norm.output, {&map, 1}, scratch.gathered, tp_,
                                       stream);
}

absl::Status Head::Loss(const Tensor& targets, float gradient_scale, bool backward,
                        const HeadActivations& activations, Stream& stream) const {
  return VocabParallelCrossEntropy(activations.logits, targets, vocab_size_, gradient_scale,
                                   backward, activations.cross_entropy, activations.losses, tp_,
                                   stream);
}

absl::Status Head::Backward(const Tensor& input, const HeadTensors& parameters,
                            const HeadActivations& activations, const ParallelScratch& scratch,
                            const Tensor& d_norm, const Tensor& d_input,
                            const HeadTensors& gradients, Stream& stream) const {
  const ColumnParallelLinear::Map map{TokenMap(parameters.tokens), activations.logits};
  const ColumnParallelLinear::Map gradient{TokenMap(gradients.tokens), activations.logits};
  TESSERA_RETURN_IF_ERROR(
      ColumnParallelLinear::BackwardInput({&map, 1}, scratch.partial, d_norm, tp_, stream));
  TESSERA_RETURN_IF_ERROR(ColumnParallelLinear::BackwardWeight(
      activations.norm.output, {&gradient, 1}, scratch.gathered, tp_, stream));
  return norm_.Backward(input, parameters.norm, activations.norm, d_norm, Tensor(), d_input,
                        gradients.norm, stream);
}

}  // namespace tessera
