#include "kernels/swiglu.h"

#include "kernels/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/operation_times.h"

namespace tessera {

absl::Status SwiGluForward(const Tensor& gate, const Tensor& up, const Tensor& output,
                           Stream& stream) {
  const Shape shape{gate.shape().num_rows(), gate.shape().last_dim()};
  ArgumentChecks checks("swiglu_forward", stream);
  checks.Floating("gate", gate)
      .Rows("gate", gate, gate.dtype(), shape)
      .Rows("up", up, gate.dtype(), shape)
      .Rows("output", output, gate.dtype(), shape);
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kActivation);
    return cpu::SwiGluForward(gate, up, output, cpu::NumThreads(stream));
  }
  return NoBackend("swiglu_forward", stream);
}

absl::Status SwiGluBackward(const Tensor& gate, const Tensor& up, const Tensor& d_output,
                            const Tensor& d_gate, const Tensor& d_up, Stream& stream) {
  const Shape shape{gate.shape().num_rows(), gate.shape().last_dim()};
  ArgumentChecks checks("swiglu_backward", stream);
  checks.Floating("gate", gate)
      .Rows("gate", gate, gate.dtype(), shape)
      .Rows("up", up, gate.dtype(), shape)
      .Rows("d_output", d_output, gate.dtype(), shape)
      .Rows("d_gate", d_gate, gate.dtype(), shape)
      .Rows("d_up", d_up, gate.dtype(), shape);
  if (!checks.status().ok()) return checks.status();
  if (stream.device().kind() == DeviceKind::kCpu) {
    const OperationTimer timer(OperationFamily::kActivation);
    return cpu::SwiGluBackward(gate, up, d_output, d_gate, d_up, cpu::NumThreads(stream));
  }
  return NoBackend("swiglu_backward", stream);
}

}  // namespace tessera
