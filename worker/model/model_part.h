// The part of a model that one rank holds: its share of every layer (tp) and some of the layers
// (pp). Plain values and pure functions.
#ifndef TESSERA_WORKER_MODEL_MODEL_PART_H_
#define TESSERA_WORKER_MODEL_MODEL_PART_H_

#include <cstdint>
#include <vector>

#include "worker/model/model_config.h"
#include "worker/model/units.h"
#include "worker/tensor_parallel/layout.h"

namespace tessera {

// Contiguous layers; a rank of an interleaved pipeline has several.
struct ModelChunk {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool has_embedding = true;
  bool has_head = true;
};

struct ModelPart {
  TensorParallelLayout tp;
  std::vector<ModelChunk> chunks;  // of this rank, in forward order
  // The tied token embedding is held twice: by the rank of the embedding and by that of the head.
  bool splits_tied_embedding = false;

  static ModelPart Whole(const ModelConfig& config);
};

// The sizes of one rank: heads, kv heads, intermediate channels and (padded) vocabulary are its
// share; all else is the whole model's.
ModelConfig LocalConfig(const ModelConfig& config, const TensorParallelLayout& tp);

// Units of the part in forward order, with local shapes. A head that has a copy of the tied token
// embedding has it as its first parameter, where the embedding's unit has it as well.
std::vector<UnitSpec> LocalUnits(const ModelConfig& config, const ModelPart& part);

// Where a chunk's units are among LocalUnits.
struct ChunkUnits {
  int embedding = -1;  // of this chunk; -1: none
  int first_layer = 0;
  int head = -1;  // -1: none
};
ChunkUnits UnitsOfChunk(const ModelPart& part, int chunk);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MODEL_PART_H_
