// Keys and values of one sequence for the layers of one rank; with context parallelism each rank
// keeps some of the tokens.
//
// Legend: G kv heads of H channels on this rank.
#ifndef TESSERA_WORKER_MODEL_KV_CACHE_H_
#define TESSERA_WORKER_MODEL_KV_CACHE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/context_parallel/cache_shard.h"
#include "worker/model/activation_buffers.h"
#include "worker/model/model_config.h"
#include "worker/model/self_attention.h"

namespace tessera {

// Move-only; the device outlives it. Used by one thread.
class KvCache {
 public:
  // Tokens that go into the cache together lie in one block, and so on one rank.
  static constexpr int64_t kBlockTokens = 64;

  // Room for a sequence of `capacity` tokens, of which this rank keeps its share. local: this
  // rank's sizes, of which layers is not read. RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<KvCache> Create(const ModelConfig& local, int64_t layers, int64_t capacity,
                                        int cp_size, int cp_rank, DType dtype, Device& device);

  int64_t capacity() const { return capacity_; }
  int64_t length() const { return length_; }  // of the sequence so far
  int64_t rows() const { return shard_.RowsPerRank(capacity_); }
  int64_t own_length() const { return shard_.KeysOf(cp_rank_, length_); }  // rows that are set
  const AttentionCache& layer(int64_t i) const { return layers_[i]; }
  // Whether the next tokens belong here, and how many of `wanted` may come together.
  bool owns_next() const { return shard_.OwnerOf(length_) == cp_rank_; }
  int64_t NextTokens(int64_t wanted) const {
    return shard_.cp_size == 1 ? wanted : shard_.NextTokens(length_, wanted);
  }
  void Advance(int64_t tokens) { length_ += tokens; }
  void Clear() { length_ = 0; }

 private:
  KvCache(int64_t capacity, const CacheShard& shard, int cp_rank, ActivationBuffers buffers)
      : capacity_(capacity), shard_(shard), cp_rank_(cp_rank), buffers_(std::move(buffers)) {}

  int64_t capacity_ = 0;
  CacheShard shard_;
  int cp_rank_ = 0;
  int64_t length_ = 0;
  std::vector<AttentionCache> layers_;
  ActivationBuffers buffers_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_KV_CACHE_H_
