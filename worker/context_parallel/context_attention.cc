#include "worker/context_parallel/context_attention.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/context_parallel/all_gather_attention.h"
#include "worker/context_parallel/local_attention.h"
#include "worker/context_parallel/ring_attention.h"
#include "worker/context_parallel/ulysses_attention.h"
#include "worker/context_parallel/zigzag.h"

namespace tessera {
namespace {

absl::Status CheckShape(ContextParallelKind kind, const AttentionShape& local, DType dtype,
                        int cp_size) {
  if (local.batch < 1 || local.time < 1 || local.heads < 1 || local.kv_heads < 1 ||
      local.head_size < 1 || local.heads % local.kv_heads != 0 || !IsFloating(dtype)) {
    return absl::InvalidArgumentError(
        "context_attention: sizes must be at least 1, kv_heads must divide heads, and elements be "
        "floating");
  }
  if (!local.causal || local.past != 0 || local.keys != 0 || local.key_rows != 0 ||
      local.query_rows != 0) {
    return absl::InvalidArgumentError(
        "context_attention: past, keys, key_rows and query_rows must be 0, and causal true");
  }
  if (cp_size > 1 && local.time % kZigzagHalves != 0) {
    return absl::InvalidArgumentError(absl::StrCat("context_attention: sequences of ",
                                                   local.time * cp_size, " tokens over cp ",
                                                   cp_size, ": 2 * cp must divide their length"));
  }
  return kind == ContextParallelKind::kUlysses ? CheckUlyssesHeads(local, cp_size)
                                               : absl::OkStatus();
}

template <class Kind>
absl::StatusOr<std::unique_ptr<ContextAttention>> Make(const AttentionShape& local, DType dtype,
                                                       bool backward, Communicator* cp_group,
                                                       Device& device) {
  auto attention = std::make_unique<Kind>(local, dtype, backward, cp_group, device);
  TESSERA_RETURN_IF_ERROR(attention->status());
  return attention;
}

}  // namespace

const char* ContextParallelKindName(ContextParallelKind kind) {
  switch (kind) {
    case ContextParallelKind::kRing:
      return "ring";
    case ContextParallelKind::kAllGather:
      return "all_gather";
    case ContextParallelKind::kUlysses:
      return "ulysses";
  }
  return "unknown";
}

absl::StatusOr<std::unique_ptr<ContextAttention>> CreateContextAttention(
    ContextParallelKind kind, const AttentionShape& local, DType dtype, bool backward,
    Communicator* cp_group, Device& device) {
  const int cp_size = cp_group == nullptr ? 1 : cp_group->size();
  TESSERA_RETURN_IF_ERROR(CheckShape(kind, local, dtype, cp_size));
  if (cp_size == 1) {
    return Make<LocalAttention>(local, dtype, backward, cp_group, device);
  }
  switch (kind) {
    case ContextParallelKind::kRing:
      return Make<RingAttention>(local, dtype, backward, cp_group, device);
    case ContextParallelKind::kAllGather:
      return Make<AllGatherAttention>(local, dtype, backward, cp_group, device);
    case ContextParallelKind::kUlysses:
      return Make<UlyssesAttention>(local, dtype, backward, cp_group, device);
  }
  return absl::InvalidArgumentError("context_attention: no such kind");
}

}  // namespace tessera
