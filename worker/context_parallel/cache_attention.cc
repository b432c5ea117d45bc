#include "worker/context_parallel/cache_attention.h"

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/attention_merge.h"
#include "kernels/check.h"
#include "kernels/matrix_copy.h"
#include "kernels/status_macros.h"

namespace tessera {
namespace {

// Elements of one rank's part.
int64_t PartElements(const AttentionShape& limits, int64_t time) {
  return time * limits.heads * (limits.head_size + 1);
}

int SizeOf(const Communicator* group) { return group == nullptr ? 1 : group->size(); }

// A group of one writes output itself.
int64_t BufferElements(const AttentionShape& limits, int cp_size) {
  return cp_size == 1 ? limits.time * limits.heads : cp_size * PartElements(limits, limits.time);
}

}  // namespace

CommunicatorStats PredictCacheAttention(const AttentionShape& limits, int64_t time, int cp_size) {
  CommunicatorStats stats{};
  if (cp_size == 1) return stats;
  stats[static_cast<int>(CollectiveKind::kAllGather)] = {
      1, cp_size * PartElements(limits, time) * DTypeSizeBytes(DType::kFloat32)};
  return stats;
}

CacheAttention::CacheAttention(const AttentionShape& limits, DType dtype, Communicator* cp_group,
                               Device& device)
    : limits_(limits), dtype_(dtype), group_(cp_group), tensors_(device) {
  parts_ = tensors_.New(DType::kFloat32, {BufferElements(limits, SizeOf(cp_group))},
                        "cache attention parts");
  AttentionShape largest = limits;
  largest.causal = false;
  largest.keys = limits.key_rows;
  workspace_ = tensors_.NewWorkspace(largest, dtype);
}

absl::StatusOr<std::unique_ptr<CacheAttention>> CacheAttention::Create(const AttentionShape& limits,
                                                                       DType dtype,
                                                                       Communicator* cp_group,
                                                                       Device& device) {
  if (limits.batch != 1 || limits.time < 1 || limits.heads < 1 || limits.kv_heads < 1 ||
      limits.head_size < 1 || limits.heads % limits.kv_heads != 0 || limits.key_rows < 1 ||
      !limits.causal || limits.past != 0 || limits.keys != 0 || limits.query_rows != 0 ||
      !IsFloating(dtype)) {
    return absl::InvalidArgumentError(
        "cache_attention: one sequence, sizes of at least 1, kv_heads that divide heads, floating "
        "elements, and the rest by default");
  }
  auto attention = absl::WrapUnique(new CacheAttention(limits, dtype, cp_group, device));
  TESSERA_RETURN_IF_ERROR(attention->tensors_.status());
  return attention;
}

absl::Status CacheAttention::Forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                     int64_t keys, bool owns_newest, const Tensor& output,
                                     Stream& stream) {
  const int64_t time = q.shape().num_rows(), width = limits_.heads * limits_.head_size;
  ArgumentChecks checks("cache_attention", stream);
  checks
      .That(time >= 1 && time <= limits_.time,
            absl::StrCat(time, " tokens, of at most ", limits_.time))
      .That(keys >= (owns_newest ? time : 0) && keys <= limits_.key_rows,
            absl::StrCat(keys, " keys, of ", limits_.key_rows, " rows"))
      .Rows("q", q, dtype_, {time, width})
      .Rows("output", output, dtype_, {time, width});
  TESSERA_RETURN_IF_ERROR(checks.status());
  AttentionShape shape = limits_;
  shape.time = time;
  shape.causal = owns_newest;
  shape.past = owns_newest ? keys - time : 0;
  shape.keys = owns_newest ? 0 : keys;
  const Shape sums_shape{1, limits_.heads, time};
  if (SizeOf(group_) == 1) {
    return AttentionForward(shape, q, k, v, output,
                            parts_.Slice(0, limits_.heads * time).Reshape(sums_shape), workspace_,
                            stream);
  }
  const int64_t elements = PartElements(limits_, time), outputs = time * width;
  const auto part = [&](int rank) { return parts_.Slice(rank * elements, elements); };
  const auto output_of = [&](int rank) {
    return part(rank).Slice(0, outputs).Reshape({time, width});
  };
  const auto sums_of = [&](int rank) {
    return part(rank).Slice(outputs, elements - outputs).Reshape(sums_shape);
  };
  const int own = group_->group_rank();
  TESSERA_RETURN_IF_ERROR(
      AttentionForward(shape, q, k, v, output_of(own), sums_of(own), workspace_, stream));
  TESSERA_RETURN_IF_ERROR(
      group_->AllGather(part(own), parts_.Slice(0, group_->size() * elements), stream));
  for (int rank = 1; rank < group_->size(); ++rank) {
    TESSERA_RETURN_IF_ERROR(
        MergeAttention(output_of(rank), sums_of(rank), 0, output_of(0), sums_of(0), stream));
  }
  return CopyMatrix(output_of(0), output, stream);
}

}  // namespace tessera
