#include "worker/model/kv_cache.h"

namespace tessera {

absl::StatusOr<KvCache> KvCache::Create(const ModelConfig& local, int64_t layers, int64_t capacity,
                                        int cp_size, int cp_rank, DType dtype, Device& device) {
  const CacheShard shard{cp_size, kBlockTokens};
  KvCache cache(capacity, shard, cp_rank, ActivationBuffers(device, dtype));
  const Shape shape{cache.rows(), local.num_kv_heads() * local.head_size()};
  for (int64_t i = 0; i < layers; ++i) {
    cache.layers_.push_back(
        {cache.buffers_.New(shape, "kv cache"), cache.buffers_.New(shape, "kv cache")});
  }
  if (!cache.buffers_.status().ok()) return cache.buffers_.status();
  return cache;
}

}  // namespace tessera
