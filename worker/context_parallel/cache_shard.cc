#include "worker/context_parallel/cache_shard.h"

#include <algorithm>

namespace tessera {

int64_t CacheShard::RowsPerRank(int64_t capacity) const {
  // Rank 0 has the most at any length.
  return KeysOf(0, capacity);
}

int CacheShard::OwnerOf(int64_t position) const {
  return static_cast<int>(position / block_tokens % cp_size);
}

int64_t CacheShard::RowOf(int64_t position) const {
  return position / (block_tokens * cp_size) * block_tokens + position % block_tokens;
}

int64_t CacheShard::KeysOf(int cp_rank, int64_t length) const {
  const int64_t round = block_tokens * cp_size;
  const int64_t rest = length % round - cp_rank * block_tokens;
  return length / round * block_tokens + std::clamp<int64_t>(rest, 0, block_tokens);
}

int64_t CacheShard::NextTokens(int64_t length, int64_t wanted) const {
  return std::min(wanted, block_tokens - length % block_tokens);
}

}  // namespace tessera
