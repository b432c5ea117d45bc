#include "cli/model_state.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/render.h"
#include "cli/table.h"
#include "plan/model_state.h"
#include "proto/daemon/process.h"

namespace tessera {
namespace {

constexpr int kZeroStages = 4;

absl::StatusOr<v1::Precision> ParsePrecision(const std::string& text) {
  for (const auto& [name, precision] :
       {std::pair{"bf16", v1::PRECISION_BF16}, std::pair{"fp16", v1::PRECISION_FP16},
        std::pair{"fp32", v1::PRECISION_FP32}}) {
    if (text == name) return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--precision: \"", text, "\": must be bf16, fp16 or fp32"));
}

plan::ParameterBytes BytesOf(v1::Precision precision) {
  return precision == v1::PRECISION_FP32 ? plan::kFp32Bytes : plan::kMixedPrecisionBytes;
}

v1::ModelState StateOf(const v1::ModelStatePlan& plan, int zero_stage) {
  const plan::ParameterBytes bytes = BytesOf(plan.precision());
  const plan::ModelState state =
      plan::ModelStateOf(plan.parameters(), bytes, zero_stage, plan.dp());
  v1::ModelState out;
  out.set_zero_stage(zero_stage);
  out.set_parameters_bytes(state.parameters_bytes);
  out.set_gradients_bytes(state.gradients_bytes);
  out.set_optimizer_bytes(state.optimizer_bytes);
  out.set_total_bytes(state.total_bytes());
  out.set_traffic_elements(plan::ModelTrafficElements(plan.parameters(), zero_stage, plan.dp()));
  if (!plan.has_device_memory_bytes()) return out;
  out.set_fits(state.total_bytes() <= plan.device_memory_bytes());
  const std::optional<int64_t> fewest =
      plan::FewestDevices(plan.parameters(), bytes, zero_stage, plan.device_memory_bytes());
  if (fewest.has_value()) out.set_fewest_devices(*fewest);
  return out;
}

// "7.5B" of 7500000000.
std::string HumanCount(double count) {
  const char* units[] = {"", "K", "M", "B", "T"};
  int unit = 0;
  while (count >= 1000 && unit < 4) {
    count /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.4g%s", count, units[unit]);
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

std::string Heading(const v1::ModelStatePlan& plan) {
  const plan::ParameterBytes bytes = BytesOf(plan.precision());
  absl::string_view precision = v1::Precision_Name(plan.precision());
  absl::ConsumePrefix(&precision, "PRECISION_");
  std::string text =
      absl::StrCat("Model    ", HumanCount(static_cast<double>(plan.parameters())), " parameters (",
                   plan.parameters(), "), ", absl::AsciiStrToLower(precision), ": ", bytes.weight,
                   " + ", bytes.gradient, " + ", bytes.optimizer,
                   " bytes each of weights, gradients and optimizer\nDevices  ", plan.dp());
  if (plan.has_device_memory_bytes()) {
    absl::StrAppend(&text, " of ", Bytes(plan.device_memory_bytes()), " (",
                    plan.device_memory_bytes(), " bytes)");
  }
  return text + "\n";
}

}  // namespace

absl::StatusOr<int64_t> ParseCount(absl::string_view text, absl::string_view flag) {
  absl::string_view number = text;
  double factor = 1;
  for (const auto& [suffix, value] :
       {std::pair{"K", 1e3}, std::pair{"M", 1e6}, std::pair{"B", 1e9}, std::pair{"T", 1e12}}) {
    if (!absl::ConsumeSuffix(&number, suffix)) continue;
    factor = value;
    break;
  }
  double value = 0;
  const bool is_number = absl::SimpleAtod(number, &value);
  const double count = std::round(value * factor);
  if (!is_number || !(count >= 1 && count <= static_cast<double>(plan::kMaxModelParameters))) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": \"", text, "\": must be a number such as 350M, 7.5B or 1T, from 1 to 1e17"));
  }
  return static_cast<int64_t>(count);
}

absl::StatusOr<v1::ModelStatePlan> PlanModelState(const ModelStateOptions& options) {
  v1::ModelStatePlan plan;
  absl::StatusOr<int64_t> parameters = ParseCount(options.parameters, "--parameters");
  if (!parameters.ok()) return parameters.status();
  plan.set_parameters(*parameters);
  if (options.dp < 1 || options.dp > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dp: ", options.dp, ": must be 1 .. ", INT32_MAX));
  }
  plan.set_dp(options.dp);
  absl::StatusOr<v1::Precision> precision = ParsePrecision(options.precision);
  if (!precision.ok()) return precision.status();
  plan.set_precision(*precision);
  if (!options.device_memory.empty()) {
    absl::StatusOr<int64_t> memory = ParseBytes(options.device_memory, "--device-memory");
    if (!memory.ok()) return memory.status();
    plan.set_device_memory_bytes(*memory);
  }
  for (int stage = 0; stage < kZeroStages; ++stage) *plan.add_stages() = StateOf(plan, stage);
  return plan;
}

std::string ModelStateTable(const v1::ModelStatePlan& plan) {
  const bool asks = plan.has_device_memory_bytes();
  std::vector<std::string> header = {"ZERO STAGE", "PARAMETERS", "GRADIENTS",
                                     "OPTIMIZER",  "TOTAL",      "SENT A STEP"};
  if (asks) header.insert(header.end(), {"FITS", "FEWEST DEVICES"});
  Table table(header);
  for (const v1::ModelState& state : plan.stages()) {
    std::vector<std::string> row = {
        absl::StrCat(state.zero_stage()),
        Bytes(state.parameters_bytes()),
        Bytes(state.gradients_bytes()),
        Bytes(state.optimizer_bytes()),
        Bytes(state.total_bytes()),
        absl::StrCat(HumanCount(static_cast<double>(state.traffic_elements())), " elements")};
    if (asks) {
      row.emplace_back(state.fits() ? "yes" : "no");
      row.push_back(state.has_fewest_devices() ? absl::StrCat(state.fewest_devices()) : "-");
    }
    table.Add(row);
  }
  return absl::StrCat(Heading(plan), "\nModel state of a device, without activations and buffers\n",
                      table.ToString());
}

}  // namespace tessera
