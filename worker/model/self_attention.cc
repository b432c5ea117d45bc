#include "worker/model/self_attention.h"

#include <array>
#include <cmath>
#include <vector>

#include "kernels/rotary.h"
#include "kernels/status_macros.h"
#include "worker/tensor_parallel/column_parallel_linear.h"
#include "worker/tensor_parallel/row_parallel_linear.h"

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

// The maps that enter attention, with the columns of qkv (or of its gradient) each writes or reads.
struct EnteringMaps {
  std::array<ColumnParallelLinear::Map, 3> maps;
  size_t count;

  EnteringMaps(const AttentionShape& shape, const AttentionTensors& tensors, const Tensor& qkv) {
    if (!tensors.qkv.weight.is_null()) {
      maps[0] = {tensors.qkv, qkv};
      count = 1;
      return;
    }
    const auto [q, k, v] = Unpack(shape, qkv);
    maps = {{{tensors.q, q}, {tensors.k, k}, {tensors.v, v}}};
    count = 3;
  }
  absl::Span<const ColumnParallelLinear::Map> span() const { return {maps.data(), count}; }
};

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

AttentionShape MakeAttentionShape(const ModelConfig& local, int64_t batch, int64_t time) {
  AttentionShape shape;
  shape.batch = batch;
  shape.time = time;
  shape.heads = local.heads;
  shape.kv_heads = local.num_kv_heads();
  shape.head_size = local.head_size();
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(local.head_size())));
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

absl::Status FillRotaryTable(const ModelConfig& config, int64_t first_position,
                             const Tensor& positions, const AttentionScratch& scratch,
                             Stream& stream) {
  if (scratch.rotary_table.is_null()) return absl::OkStatus();
  return RotaryTable(MakeRotaryOptions(config), first_position, positions, scratch.rotary_table,
                     stream);
}

absl::Status SelfAttention::Forward(const AttentionShape& shape, const Tensor& input,
                                    const AttentionTensors& parameters, const Tensor& residual,
                                    const AttentionActivations& activations,
                                    const AttentionScratch& scratch,
                                    const ParallelScratch& parallel, const Tensor& output,
                                    const TensorParallel& tp, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(
      ForwardHeads(shape, input, parameters, activations, scratch, parallel, tp, stream));
  return RowParallelLinear::Forward(activations.output, parameters.projection, residual,
                                    parallel.partial, output, tp, stream);
}

absl::Status SelfAttention::ForwardHeads(const AttentionShape& shape, const Tensor& input,
                                         const AttentionTensors& parameters,
                                         const AttentionActivations& activations,
                                         const AttentionScratch& scratch,
                                         const ParallelScratch& parallel, const TensorParallel& tp,
                                         Stream& stream) {
  const EnteringMaps maps(shape, parameters, activations.qkv);
  TESSERA_RETURN_IF_ERROR(
      ColumnParallelLinear::Forward(input, maps.span(), parallel.gathered, tp, stream));
  TESSERA_RETURN_IF_ERROR(
      Rotate(shape, scratch.rotary_table, /*inverse=*/false, activations.qkv, stream));
  const auto [q, k, v] = Unpack(shape, activations.qkv);
  return scratch.attention->Forward(q, k, v, activations.output, activations.log_sum_exp, stream);
}

absl::Status SelfAttention::BackwardInput(
    const AttentionShape& shape, const AttentionTensors& parameters,
    const AttentionActivations& activations, const Tensor& whole_d_output,
    const AttentionScratch& scratch, const ParallelScratch& parallel, const Tensor& d_qkv,
    const Tensor& d_input, const TensorParallel& tp, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(RowParallelLinear::BackwardInput(parameters.projection, whole_d_output,
                                                           scratch.d_output, stream));
  const auto [q, k, v] = Unpack(shape, activations.qkv);
  const auto [d_q, d_k, d_v] = Unpack(shape, d_qkv);
  TESSERA_RETURN_IF_ERROR(scratch.attention->Backward(q, k, v, activations.output,
                                                      activations.log_sum_exp, scratch.d_output,
                                                      d_q, d_k, d_v, stream));
  TESSERA_RETURN_IF_ERROR(Rotate(shape, scratch.rotary_table, /*inverse=*/true, d_qkv, stream));
  const EnteringMaps maps(shape, parameters, d_qkv);
  return ColumnParallelLinear::BackwardInput(maps.span(), parallel.partial, d_input, tp, stream);
}

absl::Status SelfAttention::BackwardWeight(const AttentionShape& shape, const Tensor& input,
                                           const AttentionActivations& activations,
                                           const Tensor& whole_d_output, const Tensor& d_qkv,
                                           const ParallelScratch& parallel,
                                           const AttentionTensors& gradients,
                                           const TensorParallel& tp, Stream& stream) {
  TESSERA_RETURN_IF_ERROR(RowParallelLinear::BackwardWeight(activations.output, whole_d_output,
                                                            gradients.projection, stream));
  const EnteringMaps maps(shape, gradients, d_qkv);
  return ColumnParallelLinear::BackwardWeight(input, maps.span(), parallel.gathered, tp, stream);
}

absl::Status SelfAttention::Decode(const AttentionShape& shape, const Tensor& input,
                                   const AttentionTensors& parameters, const Tensor& residual,
                                   const AttentionActivations& activations,
                                   const AttentionScratch& scratch, const ParallelScratch& parallel,
                                   const CachedTokens& cached, const Tensor& output,
                                   const TensorParallel& tp, Stream& stream) {
  const AttentionTensors split = Split(shape, parameters);
  const int64_t columns = KeyColumns(shape);
  auto next_rows = [&](const Tensor& rows) {
    return rows.Reshape({rows.num_elements()})
        .Slice(cached.length * columns, shape.time * columns)
        .Reshape({shape.time, columns});
  };
  const Tensor q = activations.qkv.Columns(0, QueryColumns(shape));
  std::vector<ColumnParallelLinear::Map> maps = {{split.q, q}};
  std::vector<Tensor> rotated = {q};
  if (cached.owns_next) {
    const Tensor k = next_rows(cached.cache.k);
    maps.push_back({split.k, k});
    maps.push_back({split.v, next_rows(cached.cache.v)});
    rotated.push_back(k);
  }
  TESSERA_RETURN_IF_ERROR(
      ColumnParallelLinear::Forward(input, maps, parallel.gathered, tp, stream));
  if (!scratch.rotary_table.is_null()) {
    for (const Tensor& each : rotated) {
      TESSERA_RETURN_IF_ERROR(Rotary(scratch.rotary_table, /*inverse=*/false, each, stream));
    }
  }
  const int64_t keys = cached.length + (cached.owns_next ? shape.time : 0);
  TESSERA_RETURN_IF_ERROR(scratch.cache->Forward(q, cached.cache.k, cached.cache.v, keys,
                                                 cached.owns_next, activations.output, stream));
  return RowParallelLinear::Forward(activations.output, parameters.projection, residual,
                                    parallel.partial, output, tp, stream);
}

}  // namespace tessera
