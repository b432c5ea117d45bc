#include "plan/unit_buffers_replay.h"

#include <algorithm>

#include "plan/ledger_schedule.h"
#include "plan/unit_buffers.h"

namespace tessera::plan {
namespace {

constexpr int kNoUnit = -1;

// The units of one chunk.
struct ChunkUnits {
  int embedding = kNoUnit;
  std::vector<int> layers;
  std::vector<bool> recomputes;  // of layers
  int head = kNoUnit;
};

// Asks as worker/model/transformer.cc does.
class ModelReplay {
 public:
  ModelReplay(const LedgerRequest& request, const std::vector<UnitSize>& units,
              UnitBuffers& buffers);

  void Compute(const Action& action);

 private:
  void Forward(const ChunkUnits& chunk);
  void AcquireHead(const ChunkUnits& chunk);
  void ReleaseHead(const ChunkUnits& chunk);
  void BackwardHead(const ChunkUnits& chunk);
  void Backward(const ChunkUnits& chunk);
  void BackwardLayers(const ChunkUnits& chunk);
  void BackwardWeight(const ChunkUnits& chunk);
  void PrefetchFrom(const ChunkUnits& chunk, int layer);
  void PrefetchBackFrom(const ChunkUnits& chunk, int layer);
  bool SharesEmbedding(const ChunkUnits& chunk) const {
    return is_tied_ && chunk.embedding != kNoUnit;
  }

  const bool is_tied_;
  const bool weights_apart_;
  std::vector<ChunkUnits> chunks_;
  UnitBuffers& buffers_;
};

ModelReplay::ModelReplay(const LedgerRequest& request, const std::vector<UnitSize>& units,
                         UnitBuffers& buffers)
    : is_tied_(request.job.model.tied_embeddings),
      weights_apart_(request.job.schedule == PipelineSchedule::kZeroBubbleH1),
      chunks_(request.job.chunks.size()),
      buffers_(buffers) {
  const TrafficRequest& job = request.job;
  const LayerRange& again = job.recompute_layers;
  for (int i = 0; i < static_cast<int>(units.size()); ++i) {
    const UnitSize& unit = units[i];
    ChunkUnits& chunk = chunks_[unit.chunk];
    if (unit.kind == UnitKind::kEmbedding) chunk.embedding = i;
    if (unit.kind == UnitKind::kHead) chunk.head = i;
    if (unit.kind != UnitKind::kLayer) continue;
    chunk.layers.push_back(i);
    chunk.recomputes.push_back(job.recompute != RecomputeKind::kNone && unit.layer >= again.first &&
                               unit.layer < again.end());
  }
}

void ModelReplay::Compute(const Action& action) {
  const ChunkUnits& chunk = chunks_[action.chunk];
  switch (action.kind) {
    case ActionKind::kForward:
      return Forward(chunk);
    case ActionKind::kBackward:
      Backward(chunk);
      if (weights_apart_) BackwardWeight(chunk);
      return;
    case ActionKind::kBackwardInput:
      return Backward(chunk);
    case ActionKind::kBackwardWeight:
      return BackwardWeight(chunk);
    default:
      return;
  }
}

void ModelReplay::PrefetchFrom(const ChunkUnits& chunk, int layer) {
  buffers_.PrefetchParameters(absl::MakeConstSpan(chunk.layers).subspan(layer));
}

void ModelReplay::PrefetchBackFrom(const ChunkUnits& chunk, int layer) {
  const std::vector<int> units(chunk.layers.rend() - (layer + 1), chunk.layers.rend());
  buffers_.PrefetchParameters(units);
}

void ModelReplay::Forward(const ChunkUnits& chunk) {
  if (chunk.embedding != kNoUnit) {
    buffers_.AcquireParameters(chunk.embedding);
    PrefetchFrom(chunk, 0);
    buffers_.ReleaseParameters(chunk.embedding);
  }
  for (int i = 0; i < static_cast<int>(chunk.layers.size()); ++i) {
    buffers_.AcquireParameters(chunk.layers[i]);
    PrefetchFrom(chunk, i + 1);
    buffers_.ReleaseParameters(chunk.layers[i]);
  }
}

void ModelReplay::AcquireHead(const ChunkUnits& chunk) {
  buffers_.AcquireParameters(chunk.head);
  if (SharesEmbedding(chunk)) buffers_.AcquireParameters(chunk.embedding);
}

void ModelReplay::ReleaseHead(const ChunkUnits& chunk) {
  if (SharesEmbedding(chunk)) buffers_.ReleaseParameters(chunk.embedding);
  buffers_.ReleaseParameters(chunk.head);
}

void ModelReplay::BackwardHead(const ChunkUnits& chunk) {
  // Its forward, and then its backward.
  AcquireHead(chunk);
  AcquireHead(chunk);
  PrefetchBackFrom(chunk, static_cast<int>(chunk.layers.size()) - 1);
  buffers_.AcquireGradients(chunk.head);
  if (SharesEmbedding(chunk)) buffers_.AcquireGradients(chunk.embedding);
  ReleaseHead(chunk);
  ReleaseHead(chunk);
  buffers_.GradientsReady(chunk.head);
}

void ModelReplay::Backward(const ChunkUnits& chunk) {
  if (chunk.head != kNoUnit) BackwardHead(chunk);
  BackwardLayers(chunk);
  if (chunk.embedding == kNoUnit) return;
  buffers_.AcquireGradients(chunk.embedding);
  buffers_.GradientsReady(chunk.embedding);
}

void ModelReplay::BackwardLayers(const ChunkUnits& chunk) {
  for (int i = static_cast<int>(chunk.layers.size()) - 1; i >= 0; --i) {
    buffers_.AcquireParameters(chunk.layers[i]);
    PrefetchBackFrom(chunk, i - 1);
    buffers_.AcquireGradients(chunk.layers[i]);
    buffers_.ReleaseParameters(chunk.layers[i]);
    if (!weights_apart_) buffers_.GradientsReady(chunk.layers[i]);
  }
}

void ModelReplay::BackwardWeight(const ChunkUnits& chunk) {
  for (int i = static_cast<int>(chunk.layers.size()) - 1; i >= 0; --i) {
    buffers_.AcquireGradients(chunk.layers[i]);
    if (chunk.recomputes[i]) {
      buffers_.AcquireParameters(chunk.layers[i]);
      buffers_.ReleaseParameters(chunk.layers[i]);
    }
    buffers_.GradientsReady(chunk.layers[i]);
  }
}

}  // namespace

BigSize PeakUnitBufferBytes(const LedgerRequest& request, const std::vector<UnitSize>& units,
                            const StageActions& actions) {
  const OffloadOptions& offload = request.offload;
  if (request.job.zero_stage < 2 && !offload.gradients.is_on() && !offload.parameters.is_on()) {
    return 0;
  }
  UnitBuffers buffers(request, units, ShortenedSchedule(request.schedule).micro_batches);
  ModelReplay model(request, units, buffers);
  for (const Action& action : actions) model.Compute(action);
  return buffers.peak_bytes();
}

}  // namespace tessera::plan
