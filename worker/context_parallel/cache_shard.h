// Which rank of a cp group holds which token of a sequence's KV cache: blocks of consecutive
// positions are dealt to the ranks in turn, so that any length is spread evenly, to a block. Pure.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_CACHE_SHARD_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_CACHE_SHARD_H_

#include <cstdint>

namespace tessera {

// The same on all ranks of the group. REQUIRES: both at least 1.
struct CacheShard {
  int cp_size = 1;
  int64_t block_tokens = 64;

  // Rows that each rank's cache needs for sequences of up to `capacity` tokens.
  int64_t RowsPerRank(int64_t capacity) const;
  // The rank that holds a position, and the row of its cache.
  int OwnerOf(int64_t position) const;
  int64_t RowOf(int64_t position) const;
  // Rows that cp_rank has set of a sequence of `length` tokens: the first so many of its cache.
  int64_t KeysOf(int cp_rank, int64_t length) const;
  // How many of `wanted` tokens that follow `length` others one call of CacheAttention takes: those
  // of the block that is being filled, so that one rank owns them all.
  int64_t NextTokens(int64_t length, int64_t wanted) const;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_CACHE_SHARD_H_
