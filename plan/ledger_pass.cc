#include "plan/ledger_pass.h"

#include <algorithm>
#include <initializer_list>

namespace tessera::plan {
namespace {

constexpr int kFp32Bytes = 4, kTokenBytes = 4;

LedgerBytes Sum(std::initializer_list<LedgerBytes> parts) {
  LedgerBytes sum;
  for (const LedgerBytes& part : parts) sum.Add(part);
  return sum;
}

LedgerBytes Times(BigSize times, const LedgerBytes& part) {
  LedgerBytes sum;
  sum.Add(part, times);
  return sum;
}

}  // namespace

PassSizes::PassSizes(const TrafficRequest& job, int64_t batch_size, int64_t tokens,
                     bool shards_rows_over_tp)
    : batch(batch_size),
      time(tokens),
      rows(batch * time),
      shard_rows(shards_rows_over_tp ? rows / job.mesh.tp : rows),
      hidden(job.model.hidden_size),
      heads(job.model.heads / job.mesh.tp),
      kv_heads(std::max<int64_t>(job.model.kv_heads / job.mesh.tp, 1)),
      head_size(job.model.head_size),
      intermediate(job.model.intermediate_size / job.mesh.tp),
      vocab((BigSize(job.model.vocab_size) + job.mesh.tp - 1) / job.mesh.tp),
      element_bytes(job.element_bytes),
      shards_rows(shards_rows_over_tp),
      is_llama(job.model.is_llama),
      tp(job.mesh.tp) {}

LedgerBytes PassSizes::Tensor(BigSize elements) const {
  LedgerBytes bytes;
  bytes.Allocate(LedgerCategory::kActivations, elements * element_bytes);
  return bytes;
}

LedgerBytes PassSizes::Fp32(BigSize elements) const {
  LedgerBytes bytes;
  bytes.Allocate(LedgerCategory::kActivations, elements * kFp32Bytes);
  return bytes;
}

LedgerBytes PassSizes::Residual(LedgerCategory category) const {
  LedgerBytes bytes;
  bytes.Allocate(category, shard_rows * hidden * element_bytes);
  return bytes;
}

LedgerBytes PassSizes::TokenIds() const {
  LedgerBytes bytes;
  bytes.Allocate(LedgerCategory::kActivations, rows * kTokenBytes);
  return bytes;
}

LedgerBytes PassSizes::Norm() const {
  // Its output; one statistic of RMSNorm, two of LayerNorm.
  return Sum({Residual(), Times(is_llama ? 1 : 2, Fp32(shard_rows))});
}

LedgerBytes PassSizes::Attention() const {
  return Sum({Tensor(rows * (heads + 2 * kv_heads) * head_size), Tensor(rows * heads * head_size),
              Fp32(rows * heads)});
}

LedgerBytes PassSizes::InnerLayer() const {
  return Sum({Times(2, Norm()), Residual(), Times(is_llama ? 3 : 2, Tensor(rows * intermediate))});
}

LedgerBytes PassSizes::LayerGradients(bool is_kept) const {
  return Sum({Tensor(rows * (heads + 2 * kv_heads) * head_size),
              Times(is_llama ? 2 : 1, Tensor(rows * intermediate)),
              Times(is_kept ? 2 : 0, Residual())});
}

LedgerBytes PassSizes::Head() const {
  LedgerBytes bytes = Sum({Norm(), Tensor(rows * vocab), Fp32(rows)});
  // Statistics of each row's logits: the rank's, all ranks', and their log-sum-exp.
  if (tp > 1) bytes.Add(Sum({Fp32(3 * rows), Fp32(3 * rows * tp), Fp32(rows)}));
  return bytes;
}

LedgerBytes PassSizes::LayerScratch(bool backward) const {
  LedgerBytes bytes;
  if (shards_rows) bytes.Add(Tensor(rows * hidden), 2);  // gathered rows, partial sums
  if (is_llama) bytes.Allocate(LedgerCategory::kWorkspace, time * head_size * kFp32Bytes);
  if (backward) bytes.Add(Sum({Tensor(rows * heads * head_size), Residual()}));
  return bytes;
}

}  // namespace tessera::plan
