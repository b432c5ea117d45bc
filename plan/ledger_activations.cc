#include "plan/ledger_activations.h"

#include <algorithm>

#include "plan/ledger_attention.h"
#include "plan/ledger_pass.h"

namespace tessera::plan {
namespace {

using enum LedgerCategory;
using Size = BigSize;

constexpr int kPositionBytes = 4;
constexpr int kSendBuffers = 2;  // of a stage (worker/pipeline_parallel)
// Tokens that enter the cache together, and of a cache that one cp rank has in a row.
constexpr int kCacheBlockTokens = 64;

RecomputeKind RecomputeOf(const TrafficRequest& job, int layer) {
  const LayerRange& again = job.recompute_layers;
  return layer >= again.first && layer < again.end() ? job.recompute : RecomputeKind::kNone;
}

// A layer of one micro-batch in training, without its output.
LedgerBytes LayerBytes(const PassSizes& pass, RecomputeKind recompute, bool weights_apart) {
  LedgerBytes bytes;
  if (recompute != RecomputeKind::kFull) bytes.Add(pass.InnerLayer());
  if (recompute == RecomputeKind::kNone) bytes.Add(pass.Attention());
  if (weights_apart) bytes.Add(pass.LayerGradients(/*is_kept=*/true));
  return bytes;
}

// Whether the output of a chunk's i-th layer waits in host memory: it is kept for the next layer's
// recomputation alone.
bool Waits(const LedgerRequest& request, const StageChunk& chunk, int i) {
  return request.offload.activations && i + 1 < chunk.layers.count &&
         RecomputeOf(request.job, chunk.layers.first + i + 1) == RecomputeKind::kFull;
}

int NumWaiting(const LedgerRequest& request, const StageChunk& chunk) {
  int waiting = 0;
  for (int i = 0; i < chunk.layers.count; ++i) waiting += Waits(request, chunk, i) ? 1 : 0;
  return waiting;
}

LedgerBytes MicroBatchBytes(const LedgerRequest& request, const PassSizes& pass,
                            const StageChunk& chunk) {
  const TrafficRequest& job = request.job;
  const bool weights_apart = job.schedule == PipelineSchedule::kZeroBubbleH1;
  const RecomputeKind recompute = job.recompute;
  const LayerRange& again = job.recompute_layers;
  Size recomputed = 0;
  if (recompute != RecomputeKind::kNone) {
    recomputed = std::max(
        0, std::min(chunk.layers.end(), again.end()) - std::max(chunk.layers.first, again.first));
  }
  LedgerBytes bytes;
  if (chunk.has_embedding) bytes.Add(pass.TokenIds());
  if (chunk.has_head) bytes.Add(pass.TokenIds());
  bytes.Add(pass.Residual(), 2);  // input, and the gradient that passes through the layers
  bytes.Add(pass.Residual(), chunk.layers.count - NumWaiting(request, chunk));
  bytes.Add(LayerBytes(pass, RecomputeKind::kNone, weights_apart), chunk.layers.count - recomputed);
  bytes.Add(LayerBytes(pass, recompute, weights_apart), recomputed);
  return bytes;
}

// Outputs that wait pass through two tensors, which layers take in turn.
LedgerBytes PassingBytes(const LedgerRequest& request, const PassSizes& pass) {
  bool passes[2] = {};
  for (const StageChunk& chunk : request.job.chunks) {
    for (int i = 0; i < chunk.layers.count; ++i) passes[i % 2] |= Waits(request, chunk, i);
  }
  LedgerBytes bytes;
  bytes.Add(pass.Residual(), (passes[0] ? 1 : 0) + (passes[1] ? 1 : 0));
  return bytes;
}

PassSizes TrainingPass(const TrafficRequest& job) {
  return PassSizes(job, job.micro_batch_size, job.sequence_length / job.mesh.cp,
                   job.sequence_parallel && job.mesh.tp > 1);
}

// One set for all layers of the rank that recompute.
LedgerBytes RecomputeBytes(const TrafficRequest& job, const PassSizes& pass) {
  bool recomputes = false;
  for (const StageChunk& chunk : job.chunks) {
    for (int layer = chunk.layers.first; layer < chunk.layers.end(); ++layer) {
      recomputes |= RecomputeOf(job, layer) != RecomputeKind::kNone;
    }
  }
  LedgerBytes bytes;
  if (!recomputes) return bytes;
  bytes.Add(pass.Attention());
  if (job.recompute == RecomputeKind::kFull) bytes.Add(pass.InnerLayer());
  return bytes;
}

bool HasHead(const TrafficRequest& job) { return job.chunks.back().has_head; }

// What a pass of tokens that follow a cache holds: one layer's tensors, which all share, and of a
// chunk its input and the outputs of two layers.
LedgerBytes CachedPassBytes(const LedgerRequest& request, int64_t tokens, Size cache_rows) {
  const TrafficRequest& job = request.job;
  const PassSizes pass(job, 1, tokens, /*shards_rows=*/false);
  LedgerBytes bytes = pass.LayerScratch(/*backward=*/false);
  if (HasHead(job)) bytes.Add(pass.Head());
  bytes.Add(CacheAttentionBytes(request, pass, cache_rows));
  bytes.Add(pass.Attention());
  bytes.Add(pass.InnerLayer());
  for (const StageChunk& chunk : job.chunks) {
    if (chunk.has_embedding) bytes.Add(pass.TokenIds());
    if (chunk.has_head) bytes.Add(pass.TokenIds());
    bytes.Add(pass.Residual(), 1 + std::min(chunk.layers.count, 2));
  }
  return bytes;
}

// Of a sequence whose blocks are dealt to the cp ranks in turn, the rows of the first, who has
// most.
int64_t CacheRows(const TrafficRequest& job) {
  const int64_t round = int64_t{kCacheBlockTokens} * job.mesh.cp, tokens = job.sequence_length;
  return tokens / round * kCacheBlockTokens + std::min<int64_t>(tokens % round, kCacheBlockTokens);
}

}  // namespace

LedgerBytes StageBytes(const LedgerRequest& request, const std::vector<int>& micro_batches) {
  const TrafficRequest& job = request.job;
  const PassSizes pass = TrainingPass(job);
  LedgerBytes bytes = pass.LayerScratch(/*backward=*/true);
  if (job.schedule != PipelineSchedule::kZeroBubbleH1) {
    bytes.Add(pass.LayerGradients(/*is_kept=*/false));
  }
  if (HasHead(job)) bytes.Add(pass.Head());
  if (pass.shards_rows) bytes.Allocate(kWorkspace, pass.shard_rows * kPositionBytes);
  if (job.mesh.cp > 1) bytes.Allocate(kWorkspace, pass.time * kPositionBytes);
  bytes.Add(ContextAttentionBytes(request, pass));
  bytes.Add(RecomputeBytes(job, pass));
  bytes.Add(PassingBytes(request, pass));
  for (int chunk = 0; chunk < static_cast<int>(job.chunks.size()); ++chunk) {
    bytes.Add(MicroBatchBytes(request, pass, job.chunks[chunk]), micro_batches[chunk]);
  }
  if (job.mesh.pp > 1) bytes.Add(pass.Residual(kCommunication), kSendBuffers);
  return bytes;
}

BigSize WaitingActivationBytes(const LedgerRequest& request,
                               const std::vector<int>& micro_batches) {
  const BigSize one = TrainingPass(request.job).Residual().of(kActivations);
  BigSize bytes = 0;
  for (size_t chunk = 0; chunk < request.job.chunks.size(); ++chunk) {
    bytes += one * NumWaiting(request, request.job.chunks[chunk]) * micro_batches[chunk];
  }
  return bytes;
}

LedgerBytes SamplerBytes(const LedgerRequest& request) {
  const TrafficRequest& job = request.job;
  const int64_t rows = CacheRows(job);
  const PassSizes pass(job, 1, 1, /*shards_rows=*/false);
  LedgerBytes bytes = CachedPassBytes(request, 1, rows);
  if (job.sequence_length > kCacheBlockTokens) {
    bytes.Add(CachedPassBytes(request, kCacheBlockTokens, rows));
  }
  Size layers = 0;
  for (const StageChunk& chunk : job.chunks) layers += chunk.layers.count;
  bytes.Allocate(kActivations, rows * pass.kv_heads * pass.head_size * job.element_bytes,
                 2 * layers);
  if (job.mesh.tp * job.mesh.pp > 1) {
    bytes.Allocate(kCommunication, pass.vocab * job.mesh.tp * job.element_bytes);
  }
  return bytes;
}

}  // namespace tessera::plan
