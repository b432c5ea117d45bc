#include "plan/model_state.h"

#include "absl/numeric/int128.h"

namespace tessera::plan {
namespace {

int64_t CeilDivide(int64_t value, int64_t divisor) {
  return value / divisor + (value % divisor == 0 ? 0 : 1);
}

// Bytes of one parameter that every device holds, and that are shared.
struct Split {
  int64_t whole = 0;
  int64_t shared = 0;
};

Split SplitOf(const ParameterBytes& bytes, int zero_stage) {
  Split split;
  (zero_stage >= 1 ? split.shared : split.whole) += bytes.optimizer;
  (zero_stage >= 2 ? split.shared : split.whole) += bytes.gradient;
  (zero_stage >= 3 ? split.shared : split.whole) += bytes.weight;
  return split;
}

}  // namespace

ModelState ModelStateOf(int64_t parameters, const ParameterBytes& bytes, int zero_stage,
                        int64_t devices) {
  const int64_t share = CeilDivide(parameters, devices);
  return {.parameters_bytes = bytes.weight * (zero_stage >= 3 ? share : parameters),
          .gradients_bytes = bytes.gradient * (zero_stage >= 2 ? share : parameters),
          .optimizer_bytes = bytes.optimizer * (zero_stage >= 1 ? share : parameters)};
}

int64_t ModelTrafficElements(int64_t parameters, int zero_stage, int64_t devices) {
  // Reduce-scatter of gradients and all-gather of weights; stage 3 gathers for backward as well.
  const int passes = zero_stage >= 3 ? 3 : 2;
  return static_cast<int64_t>(absl::int128(passes) * parameters * (devices - 1) / devices);
}

std::optional<int64_t> FewestDevices(int64_t parameters, const ParameterBytes& bytes,
                                     int zero_stage, int64_t memory_bytes) {
  const Split split = SplitOf(bytes, zero_stage);
  const int64_t room = memory_bytes - split.whole * parameters;
  if (split.shared == 0) return room >= 0 ? std::optional<int64_t>(1) : std::nullopt;
  const int64_t share = room < 0 ? 0 : room / split.shared;  // parameters a device has room for
  if (share == 0) return std::nullopt;
  return CeilDivide(parameters, share);
}

}  // namespace tessera::plan
