#include "kernels/attention.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {
namespace {

absl::Status CheckForward(absl::string_view operation, const AttentionShape& shape, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& output,
                          const Tensor& log_sum_exp, const Tensor& workspace, Stream& stream) {
  ArgumentChecks checks(operation, stream);
  checks
      .That(shape.batch >= 1 && shape.time >= 1 && shape.heads >= 1 && shape.kv_heads >= 1 &&
                shape.head_size >= 1 && shape.heads % shape.kv_heads == 0,
            "sizes must be at least 1 and kv_heads must divide heads")
      .That(shape.past >= 0 && (shape.key_rows == 0 || shape.key_rows >= shape.past + shape.time),
            "past must be at least 0 and key_rows 0 or at least past + time");
  if (!checks.status().ok()) return checks.status();
  const int64_t rows = shape.batch * shape.time;
  const int64_t key_rows =
      shape.batch * (shape.key_rows == 0 ? shape.past + shape.time : shape.key_rows);
  const DType dtype = q.dtype();
  checks.Floating("q", q)
      .Rows("q", q, dtype, {rows, shape.heads * shape.head_size})
      .Rows("k", k, dtype, {key_rows, shape.kv_heads * shape.head_size})
      .Rows("v", v, dtype, {key_rows, shape.kv_heads * shape.head_size})
      .Rows("output", output, dtype, {rows, shape.heads * shape.head_size})
      .Dense("log_sum_exp", log_sum_exp, DType::kFloat32, {shape.batch, shape.heads, shape.time})
      .Dense("workspace", workspace, DType::kUInt8, {workspace.num_elements()})
      .That(workspace.size_bytes() >= AttentionWorkspaceBytes(shape, stream.device(), dtype),
            "workspace is too small");
  return checks.status();
}

}  // namespace

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device, DType dtype) {
  return device.kind() == DeviceKind::kCpu ? cpu::AttentionWorkspaceBytes(shape, device, dtype) : 0;
}

absl::Status CausalAttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const Tensor& output,
                                    const Tensor& log_sum_exp, const Tensor& workspace,
                                    Stream& stream) {
  absl::Status status =
      CheckForward("attention_forward", shape, q, k, v, output, log_sum_exp, workspace, stream);
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kAttention);
    return cpu::CausalAttentionForward(shape, q, k, v, output, log_sum_exp, workspace,
                                       cpu::NumThreads(stream));
  }
  return NoBackend("attention_forward", stream);
}

absl::Status CausalAttentionBackward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Tensor& output,
                                     const Tensor& log_sum_exp, const Tensor& d_output,
                                     const Tensor& d_q, const Tensor& d_k, const Tensor& d_v,
                                     const Tensor& workspace, Stream& stream) {
  absl::Status status =
      CheckForward("attention_backward", shape, q, k, v, output, log_sum_exp, workspace, stream);
  if (!status.ok()) return status;
  ArgumentChecks checks("attention_backward", stream);
  checks
      .That(shape.past == 0 && shape.key_rows == 0,
            "past and key_rows must be 0: no cache is trained")
      .Rows("d_output", d_output, q.dtype(), output.shape())
      .Rows("d_q", d_q, q.dtype(), q.shape())
      .Rows("d_k", d_k, q.dtype(), k.shape())
      .Rows("d_v", d_v, q.dtype(), v.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kAttention);
    return cpu::CausalAttentionBackward(shape, q, k, v, output, log_sum_exp, d_output, d_q, d_k,
                                        d_v, workspace, cpu::NumThreads(stream));
  }
  return NoBackend("attention_backward", stream);
}

}  // namespace tessera
