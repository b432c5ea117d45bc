#include "kernels/attention.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {
namespace {

// An output in fp32 or the inputs' type.
ArgumentChecks& CheckResult(absl::string_view name, const Tensor& result, DType dtype, Shape shape,
                            ArgumentChecks& checks) {
  return checks.Rows(name, result, result.dtype() == DType::kFloat32 ? DType::kFloat32 : dtype,
                     shape);
}

struct Matrices {
  Shape queries, keys;
};

Matrices MatricesOf(const AttentionShape& shape) {
  return {{(shape.batch - 1) * shape.num_query_rows() + shape.time, shape.heads * shape.head_size},
          {shape.batch * shape.num_key_rows(), shape.kv_heads * shape.head_size}};
}

absl::Status CheckForward(absl::string_view operation, const AttentionShape& shape, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& output,
                          const Tensor& log_sum_exp, const Tensor& workspace, Stream& stream) {
  ArgumentChecks checks(operation, stream);
  checks
      .That(shape.batch >= 1 && shape.time >= 1 && shape.heads >= 1 && shape.kv_heads >= 1 &&
                shape.head_size >= 1 && shape.heads % shape.kv_heads == 0,
            "sizes must be at least 1 and kv_heads must divide heads")
      .That(shape.causal ? shape.past >= 0 && shape.keys == 0 : shape.past == 0 && shape.keys >= 0,
            "causal attention has past and no keys, other attention keys and no past")
      .That(shape.num_key_rows() >= shape.num_keys() && shape.num_query_rows() >= shape.time,
            "key_rows must be 0 or at least the number of keys, query_rows 0 or at least time");
  if (!checks.status().ok()) return checks.status();
  const Matrices matrices = MatricesOf(shape);
  const DType dtype = q.dtype();
  checks.Floating("q", q)
      .Rows("q", q, dtype, matrices.queries)
      .Rows("k", k, dtype, matrices.keys)
      .Rows("v", v, dtype, matrices.keys);
  CheckResult("output", output, dtype, matrices.queries, checks)
      .Rows("log_sum_exp", log_sum_exp, DType::kFloat32, {shape.batch, shape.heads, shape.time})
      .Dense("workspace", workspace, DType::kUInt8, {workspace.num_elements()})
      .That(workspace.size_bytes() >= AttentionWorkspaceBytes(shape, stream.device(), dtype),
            "workspace is too small");
  return checks.status();
}

}  // namespace

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device, DType dtype) {
  return device.kind() == DeviceKind::kCpu ? cpu::AttentionWorkspaceBytes(shape, device, dtype) : 0;
}

absl::Status AttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                              const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                              const Tensor& workspace, Stream& stream) {
  absl::Status status =
      CheckForward("attention_forward", shape, q, k, v, output, log_sum_exp, workspace, stream);
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kAttention);
    return cpu::AttentionForward(shape, q, k, v, output, log_sum_exp, workspace,
                                 cpu::NumThreads(stream));
  }
  return NoBackend("attention_forward", stream);
}

absl::Status AttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& output, const Tensor& log_sum_exp,
                               const Tensor& d_output, const Tensor& d_q, const Tensor& d_k,
                               const Tensor& d_v, const Tensor& workspace, Stream& stream) {
  absl::Status status =
      CheckForward("attention_backward", shape, q, k, v, output, log_sum_exp, workspace, stream);
  if (!status.ok()) return status;
  ArgumentChecks checks("attention_backward", stream);
  const Matrices matrices = MatricesOf(shape);
  checks.Rows("d_output", d_output, q.dtype(), matrices.queries);
  CheckResult("d_q", d_q, q.dtype(), matrices.queries, checks);
  CheckResult("d_k", d_k, q.dtype(), matrices.keys, checks);
  CheckResult("d_v", d_v, q.dtype(), matrices.keys, checks);
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kAttention);
    return cpu::AttentionBackward(shape, q, k, v, output, log_sum_exp, d_output, d_q, d_k, d_v,
                                  workspace, cpu::NumThreads(stream));
  }
  return NoBackend("attention_backward", stream);
}

}  // namespace tessera
