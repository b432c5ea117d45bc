#include "worker/model/causal_self_attention.h"

#include <cmath>

#include "kernels/status_macros.h"

namespace tessera {
namespace {

struct PackedColumns {
  Tensor q, k, v;
};

PackedColumns Unpack(const Tensor& qkv) {
  const int64_t channels = qkv.shape().last_dim() / 3;
  return {qkv.Columns(0, channels), qkv.Columns(channels, channels),
          qkv.Columns(2 * channels, channels)};
}

}  // namespace

AttentionShape MakeAttentionShape(const ModelConfig& config, int64_t batch, int64_t time) {
  return {batch,
          time,
          config.heads,
          config.heads,
          config.head_size(),
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_size())))};
}

AttentionActivations AttentionActivations::Create(const AttentionShape& shape,
                                                  ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time, channels = shape.heads * shape.head_size;
  return {buffers.New(DType::kFloat32, {rows, 3 * channels}, "attention qkv"),
          buffers.New(DType::kFloat32, {rows, channels}, "attention output"),
          buffers.New(DType::kFloat32, {shape.batch, shape.heads, shape.time},
                      "attention log-sum-exp")};
}

AttentionScratch AttentionScratch::Create(const AttentionShape& shape, bool backward,
                                          ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time, channels = shape.heads * shape.head_size;
  AttentionScratch scratch;
  if (backward) {
    scratch.d_qkv = buffers.New(DType::kFloat32, {rows, 3 * channels}, "attention d_qkv");
    scratch.d_output = buffers.New(DType::kFloat32, {rows, channels}, "attention d_output");
  }
  scratch.workspace = buffers.New(DType::kUInt8, {AttentionWorkspaceBytes(shape, buffers.device())},
                                  "attention workspace", MemoryCategory::kWorkspace);
  return scratch;
}

absl::Status CausalSelfAttention::Forward(const AttentionShape& shape, const Tensor& input,
                                          const AttentionTensors& parameters,
                                          const Tensor& residual,
                                          const AttentionActivations& activations,
                                          const AttentionScratch& scratch, const Tensor& output,
                                          Stream& stream) {
  TESSERA_RETURN_IF_ERROR(
      Linear::Forward(input, parameters.qkv, Tensor(), activations.qkv, stream));
  const auto [q, k, v] = Unpack(activations.qkv);
  TESSERA_RETURN_IF_ERROR(CausalAttentionForward(
      shape, q, k, v, activations.output, activations.log_sum_exp, scratch.workspace, stream));
  return Linear::Forward(activations.output, parameters.projection, residual, output, stream);
}

absl::Status CausalSelfAttention::Backward(const AttentionShape& shape, const Tensor& input,
                                           const AttentionTensors& parameters,
                                           const AttentionActivations& activations,
                                           const Tensor& d_output, const AttentionScratch& scratch,
                                           const Tensor& d_input, const AttentionTensors& gradients,
                                           Stream& stream) {
  TESSERA_RETURN_IF_ERROR(Linear::Backward(activations.output, parameters.projection, d_output,
                                           scratch.d_output, gradients.projection, stream));
  const auto [q, k, v] = Unpack(activations.qkv);
  const auto [d_q, d_k, d_v] = Unpack(scratch.d_qkv);
  TESSERA_RETURN_IF_ERROR(CausalAttentionBackward(shape, q, k, v, activations.output,
                                                  activations.log_sum_exp, scratch.d_output, d_q,
                                                  d_k, d_v, scratch.workspace, stream));
  return Linear::Backward(input, parameters.qkv, scratch.d_qkv, d_input, gradients.qkv, stream);
}

}  // namespace tessera
