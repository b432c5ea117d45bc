#include "kernels/attention.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tessera {
namespace {

absl::Status CheckForward(absl::string_view operation, const AttentionShape& shape, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& output,
                          const Tensor& log_sum_exp, const Tensor& workspace, Stream& stream) {
  ArgumentChecks checks(operation, stream);
  checks.That(shape.batch >= 1 && shape.time >= 1 && shape.heads >= 1 && shape.kv_heads >= 1 &&
                  shape.head_size >= 1 && shape.heads % shape.kv_heads == 0,
              "sizes must be at least 1 and kv_heads must divide heads");
  if (!checks.status().ok()) return checks.status();
  const int64_t rows = shape.batch * shape.time;
  checks.Rows("q", q, DType::kFloat32, {rows, shape.heads * shape.head_size})
      .Rows("k", k, DType::kFloat32, {rows, shape.kv_heads * shape.head_size})
      .Rows("v", v, DType::kFloat32, {rows, shape.kv_heads * shape.head_size})
      .Rows("output", output, DType::kFloat32, {rows, shape.heads * shape.head_size})
      .Dense("log_sum_exp", log_sum_exp, DType::kFloat32, {shape.batch, shape.heads, shape.time})
      .Dense("workspace", workspace, DType::kUInt8, {workspace.num_elements()})
      .That(workspace.size_bytes() >= AttentionWorkspaceBytes(shape, stream.device()),
            "workspace is too small");
  return checks.status();
}

}  // namespace

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, const Device& device) {
  return device.kind() == DeviceKind::kCpu ? cpu::AttentionWorkspaceBytes(shape, device) : 0;
}

absl::Status CausalAttentionForward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const Tensor& output,
                                    const Tensor& log_sum_exp, const Tensor& workspace,
                                    Stream& stream) {
  absl::Status status =
      CheckForward("attention_forward", shape, q, k, v, output, log_sum_exp, workspace, stream);
  if (!status.ok()) return status;
  if (stream.device().kind() == DeviceKind::kCpu) {
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
  checks.Rows("d_output", d_output, DType::kFloat32, output.shape())
      .Rows("d_q", d_q, DType::kFloat32, q.shape())
      .Rows("d_k", d_k, DType::kFloat32, k.shape())
      .Rows("d_v", d_v, DType::kFloat32, v.shape());
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    return cpu::CausalAttentionBackward(shape, q, k, v, output, log_sum_exp, d_output, d_q, d_k,
                                        d_v, workspace, cpu::NumThreads(stream));
  }
  return NoBackend("attention_backward", stream);
}

}  // namespace tessera
