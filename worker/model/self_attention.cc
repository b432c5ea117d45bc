#include "worker/model/self_attention.h"

#include <cmath>

#include "kernels/rotary.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

int64_t QueryColumns(const AttentionShape& shape) { return shape.heads * shape.head_size; }
int64_t KeyColumns(const AttentionShape& shape) { return shape.kv_heads * shape.head_size; }

struct PackedColumns {
  Tensor q, k, v;
};

PackedColumns Unpack(const AttentionShape& shape, const Tensor& qkv) {
  const int64_t q = QueryColumns(shape), k = KeyColumns(shape);
  return {qkv.Columns(0, q), qkv.Columns(q, k), qkv.Columns(q + k, k)};
}

// Output columns [begin, begin + count) of a map.
LinearTensors OutputColumns(const LinearTensors& linear, int64_t begin, int64_t count) {
  return {linear.weight.Columns(begin, count), linear.bias.Slice(begin, count), linear.layout};
}

// q, k and v as three maps, however they are stored.
AttentionTensors Split(const AttentionShape& shape, const AttentionTensors& tensors) {
  if (tensors.qkv.weight.is_null()) return tensors;
  const int64_t q = QueryColumns(shape), k = KeyColumns(shape);
  AttentionTensors split;
  split.q = OutputColumns(tensors.qkv, 0, q);
  split.k = OutputColumns(tensors.qkv, q, k);
  split.v = OutputColumns(tensors.qkv, q + k, k);
  split.projection = tensors.projection;
  return split;
}

absl::Status ProjectQkv(const AttentionShape& shape, const Tensor& input,
                        const AttentionTensors& parameters, const Tensor& qkv, Stream& stream) {
  if (!parameters.qkv.weight.is_null()) {
    return Linear::Forward(input, parameters.qkv, Tensor(), qkv, stream);
  }
  const auto [q, k, v] = Unpack(shape, qkv);
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, parameters.q, Tensor(), q, stream));
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, parameters.k, Tensor(), k, stream));
  return Linear::Forward(input, parameters.v, Tensor(), v, stream);
}

absl::Status ProjectQkvBackward(const AttentionShape& shape, const Tensor& input,
                                const AttentionTensors& parameters, const Tensor& d_qkv,
                                const Tensor& d_input, const AttentionTensors& gradients,
                                Stream& stream) {
  using InputGradient = Linear::InputGradient;
  if (!parameters.qkv.weight.is_null()) {
    return Linear::Backward(input, parameters.qkv, d_qkv, InputGradient::kWrite, d_input,
                            gradients.qkv, stream);
  }
  const auto [d_q, d_k, d_v] = Unpack(shape, d_qkv);
  TESSERA_RETURN_IF_ERROR(Linear::Backward(input, parameters.q, d_q, InputGradient::kWrite, d_input,
                                           gradients.q, stream));
  TESSERA_RETURN_IF_ERROR(Linear::Backward(input, parameters.k, d_k, InputGradient::kAdd, d_input,
                                           gradients.k, stream));
  return Linear::Backward(input, parameters.v, d_v, InputGradient::kAdd, d_input, gradients.v,
                          stream);
}

// q's and k's columns of qkv in place; nothing where positions are learned.
absl::Status Rotate(const AttentionShape& shape, const Tensor& rotary_table, bool inverse,
                    const Tensor& qkv, Stream& stream) {
  if (rotary_table.is_null()) return absl::OkStatus();
  return Rotary(rotary_table, inverse, qkv.Columns(0, QueryColumns(shape) + KeyColumns(shape)),
                stream);
}

RotaryOptions MakeRotaryOptions(const ModelConfig& config) {
  RotaryOptions options;
  options.theta = config.rope_theta;
  if (config.rope_scaling) {
    const RopeScaling& scaling = *config.rope_scaling;
    options.scaling = {scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor,
                       scaling.original_context_length};
  }
  return options;
}

}  // namespace

AttentionShape MakeAttentionShape(const ModelConfig& config, int64_t batch, int64_t time) {
  AttentionShape shape;
  shape.batch = batch;
  shape.time = time;
  shape.heads = config.heads;
  shape.kv_heads = config.num_kv_heads();
  shape.head_size = config.head_size();
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_size())));
  return shape;
}

AttentionActivations AttentionActivations::Create(const AttentionShape& shape,
                                                  ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time, q = QueryColumns(shape);
  return {buffers.New({rows, q + 2 * KeyColumns(shape)}, "attention qkv"),
          buffers.New({rows, q}, "attention output"),
          buffers.New(DType::kFloat32, {shape.batch, shape.heads, shape.time},
                      "attention log-sum-exp")};
}

AttentionScratch AttentionScratch::Create(const ModelConfig& config, const AttentionShape& shape,
                                          bool backward, ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time, q = QueryColumns(shape);
  AttentionScratch scratch;
  if (backward) {
    scratch.d_qkv = buffers.New({rows, q + 2 * KeyColumns(shape)}, "attention d_qkv");
    scratch.d_output = buffers.New({rows, q}, "attention d_output");
  }
  if (config.family == ModelFamily::kLlama) {
    scratch.rotary_table = buffers.New(DType::kFloat32, {shape.time, shape.head_size},
                                       "rotary table", MemoryCategory::kWorkspace);
  }
  scratch.workspace = buffers.New(
      DType::kUInt8, {AttentionWorkspaceBytes(shape, buffers.device(), buffers.dtype())},
      "attention workspace", MemoryCategory::kWorkspace);
  return scratch;
}

absl::Status FillRotaryTable(const ModelConfig& config, int64_t first_position,
                             const AttentionScratch& scratch, Stream& stream) {
  if (scratch.rotary_table.is_null()) return absl::OkStatus();
  return RotaryTable(MakeRotaryOptions(config), first_position, Tensor(), scratch.rotary_table,
                     stream);
}

absl::Status SelfAttention::Forward(const AttentionShape& shape, const Tensor& input,
                                    const AttentionTensors& parameters, const Tensor& residual,
                                    const AttentionActivations& activations,
                                    const AttentionScratch& scratch, const Tensor& output,
                                    Stream& stream) {
  TESSERA_RETURN_IF_ERROR(ForwardHeads(shape, input, parameters, activations, scratch, stream));
  return Linear::Forward(activations.output, parameters.projection, residual, output, stream);
}

absl::Status SelfAttention::ForwardHeads(const AttentionShape& shape, const Tensor& input,
                                         const AttentionTensors& parameters,
                                         const AttentionActivations& activations,
                                         const AttentionScratch& scratch, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(ProjectQkv(shape, input, parameters, activations.qkv, stream));
  TESSERA_RETURN_IF_ERROR(
      Rotate(shape, scratch.rotary_table, /*inverse=*/false, activations.qkv, stream));
  const auto [q, k, v] = Unpack(shape, activations.qkv);
  return CausalAttentionForward(shape, q, k, v, activations.output, activations.log_sum_exp,
                                scratch.workspace, stream);
}

absl::Status SelfAttention::Backward(const AttentionShape& shape, const Tensor& input,
                                     const AttentionTensors& parameters,
                                     const AttentionActivations& activations,
                                     const Tensor& d_output, const AttentionScratch& scratch,
                                     const Tensor& d_input, const AttentionTensors& gradients,
                                     Stream& stream) {
  TESSERA_RETURN_IF_ERROR(Linear::Backward(activations.output, parameters.projection, d_output,
                                           Linear::InputGradient::kWrite, scratch.d_output,
                                           gradients.projection, stream));
  const auto [q, k, v] = Unpack(shape, activations.qkv);
  const auto [d_q, d_k, d_v] = Unpack(shape, scratch.d_qkv);
  TESSERA_RETURN_IF_ERROR(CausalAttentionBackward(shape, q, k, v, activations.output,
                                                  activations.log_sum_exp, scratch.d_output, d_q,
                                                  d_k, d_v, scratch.workspace, stream));
  TESSERA_RETURN_IF_ERROR(
      Rotate(shape, scratch.rotary_table, /*inverse=*/true, scratch.d_qkv, stream));
  return ProjectQkvBackward(shape, input, parameters, scratch.d_qkv, d_input, gradients, stream);
}

absl::Status SelfAttention::Decode(const AttentionShape& shape, const Tensor& input,
                                   const AttentionTensors& parameters, const Tensor& residual,
                                   const AttentionActivations& activations,
                                   const AttentionScratch& scratch, const AttentionCache& cache,
                                   const Tensor& output, Stream& stream) {
  const AttentionTensors maps = Split(shape, parameters);
  const int64_t columns = KeyColumns(shape);
  auto next_rows = [&](const Tensor& rows) {
    return rows.Reshape({rows.num_elements()})
        .Slice(shape.past * columns, shape.time * columns)
        .Reshape({shape.time, columns});
  };
  const Tensor q = activations.qkv.Columns(0, QueryColumns(shape));
  const Tensor k = next_rows(cache.k), v = next_rows(cache.v);
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, maps.q, Tensor(), q, stream));
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, maps.k, Tensor(), k, stream));
  TESSERA_RETURN_IF_ERROR(Linear::Forward(input, maps.v, Tensor(), v, stream));
  if (!scratch.rotary_table.is_null()) {
    for (const Tensor& rotated : {q, k}) {
      TESSERA_RETURN_IF_ERROR(Rotary(scratch.rotary_table, /*inverse=*/false, rotated, stream));
    }
  }
  TESSERA_RETURN_IF_ERROR(CausalAttentionForward(shape, q, cache.k, cache.v, activations.output,
                                                 activations.log_sum_exp, scratch.workspace,
                                                 stream));
  return Linear::Forward(activations.output, parameters.projection, residual, output, stream);
}

}  // namespace tessera
