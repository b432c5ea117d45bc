#include "worker/model/transformer_activations.h"

#include <utility>

#include "kernels/status_macros.h"

namespace tessera {
namespace {

BlockScratch MakeBlockScratch(const ModelConfig& local, const TensorParallelLayout& tp,
                              const AttentionShape& shape, int64_t shard_rows,
                              const ActivationOptions& options, ActivationBuffers& buffers) {
  const int64_t rows = shape.batch * shape.time;
  BlockScratch scratch;
  scratch.parallel = ParallelScratch::Create(tp, rows, local.hidden_size, buffers);
  if (local.family == ModelFamily::kLlama) {
    scratch.attention.rotary_table = buffers.New(DType::kFloat32, {shape.time, shape.head_size},
                                                 "rotary table", MemoryCategory::kWorkspace);
  }
  if (!options.backward) return scratch;
  scratch.attention.d_output =
      buffers.New({rows, shape.heads * shape.head_size}, "attention d_output");
  scratch.d_branch = buffers.New({shard_rows, local.hidden_size}, "d_branch");
  if (!options.weights_apart) {
    scratch.gradients =
        BlockGradients::Create(local, shape, shard_rows, /*is_kept=*/false, buffers);
  }
  return scratch;
}

}  // namespace

absl::StatusOr<TransformerScratch> TransformerScratch::Create(const ModelConfig& config,
                                                              const TensorParallelLayout& tp,
                                                              bool has_head,
                                                              const ActivationOptions& options,
                                                              Device& device, Stream& stream) {
  const ModelConfig local = LocalConfig(config, tp);
  TransformerScratch scratch(options, device);
  scratch.shape = MakeAttentionShape(local, options.batch, options.time);
  const int64_t rows = options.batch * options.time;
  scratch.shard_rows = tp.shards_rows() ? rows / tp.tp_size : rows;
  scratch.block =
      MakeBlockScratch(local, tp, scratch.shape, scratch.shard_rows, options, scratch.buffers);
  if (has_head) {
    scratch.head = HeadActivations::Create(local, tp, rows, scratch.shard_rows, scratch.buffers);
  }
  if (!scratch.buffers.status().ok()) return scratch.buffers.status();
  TESSERA_RETURN_IF_ERROR(scratch.AddPositions(config, tp, options, stream));
  if (options.cached > 0) {
    AttentionShape limits = scratch.shape;
    limits.key_rows = options.cached;
    TESSERA_ASSIGN_OR_RETURN(
        scratch.cache_attention_,
        CacheAttention::Create(limits, options.dtype, options.cp_group, device));
    scratch.block.attention.cache = scratch.cache_attention_.get();
    return scratch;
  }
  TESSERA_ASSIGN_OR_RETURN(
      scratch.attention_,
      CreateContextAttention(options.context_parallel, scratch.shape, options.dtype,
                             options.backward, options.cp_group, device));
  scratch.block.attention.attention = scratch.attention_.get();
  return scratch;
}

absl::Status TransformerScratch::AddPositions(const ModelConfig& config,
                                              const TensorParallelLayout& tp,
                                              const ActivationOptions& options, Stream& stream) {
  std::vector<int32_t> sequence = options.positions;
  if (sequence.empty()) {
    for (int32_t t = 0; t < options.time; ++t) sequence.push_back(t);
  }
  auto upload = [&](const std::vector<int32_t>& values, Tensor& tensor) {
    tensor = buffers.New(DType::kInt32, {static_cast<int64_t>(values.size())}, "positions",
                         MemoryCategory::kWorkspace);
    TESSERA_RETURN_IF_ERROR(buffers.status());
    TESSERA_RETURN_IF_ERROR(
        stream.device().CopyIn(values.data(), tensor.size_bytes(), tensor, stream));
    return stream.Synchronize();
  };
  if (tp.shards_rows()) {
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < shard_rows; ++i) {
      rows.push_back(sequence[(tp.tp_rank * shard_rows + i) % options.time]);
    }
    TESSERA_RETURN_IF_ERROR(upload(rows, row_positions));
  }
  if (!options.positions.empty()) {
    TESSERA_RETURN_IF_ERROR(upload(sequence, positions_));
    if (!tp.shards_rows()) row_positions = positions_;
  }
  if (options.cached > 0) return absl::OkStatus();  // Decode fills the table at every call
  return FillRotaryTable(config, 0, positions_, block.attention, stream);
}

absl::StatusOr<TransformerActivations> TransformerActivations::Create(
    const ModelConfig& config, const TensorParallelLayout& tp, const ModelChunk& chunk,
    const ActivationOptions& options, TransformerScratch& scratch, Device& device) {
  TransformerActivations a(options, device);
  const int64_t rows = options.batch * options.time;
  if (chunk.has_embedding) {
    a.ids = a.buffers.New(DType::kInt32, {options.batch, options.time}, "token ids");
  }
  if (chunk.has_head) a.targets = a.buffers.New(DType::kInt32, {rows}, "targets");
  a.input = a.buffers.New({scratch.shard_rows, config.hidden_size}, "chunk input");
  a.AddLayers(LocalConfig(config, tp), chunk, options, scratch);
  if (options.backward) {
    a.d_residual = a.buffers.New({scratch.shard_rows, config.hidden_size}, "d_residual");
  }
  TESSERA_RETURN_IF_ERROR(scratch.buffers.status());
  TESSERA_RETURN_IF_ERROR(a.buffers.status());
  TESSERA_RETURN_IF_ERROR(a.host_buffers_.status());
  return a;
}

bool TransformerActivations::Waits(const ModelChunk& chunk, const ActivationOptions& options,
                                   int64_t layer) const {
  return options.backward && room_.host != nullptr && layer + 1 < chunk.layers &&
         recompute.of(chunk.first_layer + layer + 1) == Recompute::kFull;
}

absl::Status TransformerActivations::StoreOutput(int layer, Stream& stream) const {
  if (waiting.empty() || waiting[layer].is_null()) return absl::OkStatus();
  const Tensor& output = layers[layer].output;
  TESSERA_RETURN_IF_ERROR(stream.device().CopyOut(
      output, reinterpret_cast<void*>(waiting[layer].address()), output.size_bytes(), stream));
  room_.on_copy(output.size_bytes(), /*to_host=*/true);
  return absl::OkStatus();
}

absl::Status TransformerActivations::FetchOutput(int layer, Stream& stream) const {
  if (waiting.empty() || waiting[layer].is_null()) return absl::OkStatus();
  const Tensor& output = layers[layer].output;
  room_.on_copy(output.size_bytes(), /*to_host=*/false);
  return stream.device().CopyIn(reinterpret_cast<const void*>(waiting[layer].address()),
                                output.size_bytes(), output, stream);
}

void TransformerActivations::AddLayers(const ModelConfig& local, const ModelChunk& chunk,
                                       const ActivationOptions& options,
                                       TransformerScratch& scratch) {
  const Shape shape{scratch.shard_rows, local.hidden_size};
  // Without backward every layer uses one set of tensors, and reads what the layer before wrote to
  // the other of two outputs.
  Tensor outputs[2];
  for (int64_t i = 0; i < chunk.layers; ++i) {
    const Recompute what =
        options.backward ? recompute.of(chunk.first_layer + i) : Recompute::kFull;
    if (what != Recompute::kNone && !scratch.shared_attention) {
      scratch.shared_attention = AttentionActivations::Create(scratch.shape, scratch.buffers);
    }
    if (what == Recompute::kFull && !scratch.shared_inner) {
      scratch.shared_inner =
          BlockActivations::CreateInner(local, scratch.shape, scratch.shard_rows, scratch.buffers);
    }
    BlockActivations layer =
        what == Recompute::kFull
            ? *scratch.shared_inner
            : BlockActivations::CreateInner(local, scratch.shape, scratch.shard_rows, buffers);
    layer.attention = what == Recompute::kNone
                          ? AttentionActivations::Create(scratch.shape, buffers)
                          : *scratch.shared_attention;
    if (Waits(chunk, options, i)) {
      waiting.resize(chunk.layers);
      waiting[i] = host_buffers_.New(shape, "residual that waits");
      Tensor& passing = scratch.passing[i % 2];
      if (passing.is_null()) passing = scratch.buffers.New(shape, "residual on its way");
      layer.output = passing;
    } else {
      layer.output =
          options.backward || i < 2 ? buffers.New(shape, "residual after mlp") : outputs[i % 2];
    }
    outputs[i % 2] = layer.output;
    layers.push_back(layer);
    if (!options.backward || !options.weights_apart) continue;
    gradients.push_back(BlockGradients::Create(local, scratch.shape, scratch.shard_rows,
                                               /*is_kept=*/true, buffers));
  }
}

}  // namespace tessera
