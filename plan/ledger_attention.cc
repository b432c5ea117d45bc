#include "plan/ledger_attention.h"

#include <algorithm>

namespace tessera::plan {
namespace {

using enum LedgerCategory;
using Size = BigSize;

constexpr int kFp32Bytes = 4;
constexpr int kBlockRows = 64;  // of queries, whose scores a thread has at once (kernels/cpu)

// Of each thread: scores and their gradients; below fp32 also four matrices of keys and four of
// queries, as fp32.
void AddWorkspace(const LedgerRequest& request, const PassSizes& pass, Size queries, Size keys,
                  LedgerBytes& bytes) {
  const Size block = std::min<Size>(queries, kBlockRows);
  const Size converted = pass.element_bytes == kFp32Bytes ? Size(0) : 4 * (keys + block);
  bytes.Allocate(kWorkspace, (2 * block * keys + converted * pass.head_size) * kFp32Bytes *
                                 request.num_threads);
}

// Two of K and V as sent, the partial results of a step, and gradients of K and V: two that travel,
// the rank's own, and with more than one step between them a step's.
void AddRing(int cp, const PassSizes& pass, LedgerBytes& bytes) {
  const Size queries = pass.rows * pass.heads * pass.head_size;
  const Size keys = pass.rows * 2 * pass.kv_heads * pass.head_size;
  bytes.Allocate(kCommunication, keys * pass.element_bytes, 2);
  bytes.Allocate(kCommunication, queries * kFp32Bytes, pass.element_bytes == kFp32Bytes ? 1 : 2);
  bytes.Allocate(kCommunication, pass.rows * pass.heads * kFp32Bytes);
  bytes.Allocate(kCommunication, keys * kFp32Bytes, cp > 2 ? 4 : 3);
}

// K and V of all ranks and their gradients, each as sent and in the order of tokens.
void AddAllGather(int cp, const PassSizes& pass, LedgerBytes& bytes) {
  const Size keys = cp * pass.rows * 2 * pass.kv_heads * pass.head_size;
  bytes.Allocate(kCommunication, keys * pass.element_bytes, 2);
  bytes.Allocate(kCommunication, keys * kFp32Bytes, 2);
}

// Messages out and in; what a rank's heads take and give, of whole sequences. Where kv heads are on
// several ranks their gradients are fp32 and apart.
void AddUlysses(int cp, const PassSizes& pass, LedgerBytes& bytes) {
  const Size all_rows = cp * pass.rows;
  const Size q = pass.heads / cp * pass.head_size;
  const Size kv = 2 * std::max<Size>(pass.kv_heads / cp, 1) * pass.head_size;
  const bool repeats = cp > pass.kv_heads;
  const Size row_bytes = (3 * q + kv) * pass.element_bytes;  // more than of those gradients
  bytes.Allocate(kCommunication, all_rows * row_bytes, 3);
  bytes.Allocate(kCommunication, all_rows * (repeats ? q : q + kv) * pass.element_bytes);
  if (repeats) bytes.Allocate(kCommunication, all_rows * kv * kFp32Bytes);
}

}  // namespace

LedgerBytes ContextAttentionBytes(const LedgerRequest& request, const PassSizes& pass) {
  const int cp = request.job.mesh.cp;
  LedgerBytes bytes;
  if (cp == 1) {
    AddWorkspace(request, pass, pass.time, pass.time, bytes);
    return bytes;
  }
  switch (request.job.context_parallel) {
    case ContextParallelAttention::kRing:
      AddRing(cp, pass, bytes);
      AddWorkspace(request, pass, pass.time, pass.time, bytes);
      break;
    case ContextParallelAttention::kAllGather:  // half of the queries at a time
      AddAllGather(cp, pass, bytes);
      AddWorkspace(request, pass, pass.time / 2, cp * pass.time, bytes);
      break;
    case ContextParallelAttention::kUlysses:
      AddUlysses(cp, pass, bytes);
      AddWorkspace(request, pass, cp * pass.time, cp * pass.time, bytes);
      break;
  }
  return bytes;
}

LedgerBytes CacheAttentionBytes(const LedgerRequest& request, const PassSizes& pass,
                                BigSize cache_rows) {
  const int cp = request.job.mesh.cp;
  LedgerBytes bytes;
  // Log-sum-exps, and in a group all ranks' partial outputs with them.
  const Size sums = pass.time * pass.heads;
  bytes.Allocate(kCommunication, (cp == 1 ? sums : cp * sums * (pass.head_size + 1)) * kFp32Bytes);
  AddWorkspace(request, pass, pass.time, cache_rows, bytes);
  return bytes;
}

}  // namespace tessera::plan
