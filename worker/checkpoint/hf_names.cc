#include "worker/checkpoint/hf_names.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kernels/status_macros.h"
#include "storage/json.h"

namespace tessera {
namespace {

constexpr absl::string_view kGpt2Prefix = "transformer.";
constexpr char kHeadName[] = "lm_head.weight";

// Whether name is BEFORE{i}AFTER for a layer that there is.
bool IsOfLayer(absl::string_view name, absl::string_view before, absl::string_view after,
               int64_t layers) {
  int64_t layer = -1;
  return absl::ConsumePrefix(&name, before) && absl::ConsumeSuffix(&name, after) &&
         absl::SimpleAtoi(name, &layer) && layer >= 0 && layer < layers &&
         name == absl::StrCat(layer);
}

// Buffers that are no parameters, computed by newer releases.
bool IsBuffer(const ModelConfig& config, absl::string_view name) {
  if (config.family == ModelFamily::kGpt2) {
    return IsOfLayer(name, "h.", ".attn.bias", config.layers) ||
           IsOfLayer(name, "h.", ".attn.masked_bias", config.layers);
  }
  return IsOfLayer(name, "model.layers.", ".self_attn.rotary_emb.inv_freq", config.layers);
}

absl::Status Wrong(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedForMessage(name), ": ", what));
}

absl::Status CheckShape(const std::string& tensor, const std::vector<uint64_t>& stored,
                        const Shape& shape) {
  const std::vector<uint64_t> expected = ShapeDims(shape);
  if (stored == expected) return absl::OkStatus();
  return Wrong(tensor,
               absl::StrCat("its shape is (", absl::StrJoin(stored, ", "),
                            "), but the config gives (", absl::StrJoin(expected, ", "), ")"));
}

}  // namespace

std::vector<ParameterSpec> ParametersOf(const ModelConfig& config) {
  std::vector<ParameterSpec> parameters;
  for (UnitSpec& unit : Units(config)) {
    for (ParameterSpec& parameter : unit.parameters) parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::string HfTensorName(ModelFamily family, absl::string_view parameter) {
  const bool prefixed = family == ModelFamily::kGpt2 && parameter != kHeadName;
  return absl::StrCat(prefixed ? kGpt2Prefix : "", parameter);
}

std::vector<uint64_t> ShapeDims(const Shape& shape) {
  std::vector<uint64_t> dims;
  for (int i = 0; i < shape.num_dims(); ++i) dims.push_back(shape.dim(i));
  return dims;
}

absl::StatusOr<HfBinding> BindHfTensors(
    const ModelConfig& config, const std::map<std::string, std::vector<uint64_t>>& shapes) {
  std::map<std::string, Shape> wanted;
  for (const ParameterSpec& parameter : ParametersOf(config)) {
    wanted.emplace(parameter.name, parameter.shape);
  }
  HfBinding binding;
  for (const auto& [tensor, stored_shape] : shapes) {
    absl::string_view name = tensor;
    if (config.family == ModelFamily::kGpt2) absl::ConsumePrefix(&name, kGpt2Prefix);
    if (IsBuffer(config, name)) continue;
    const auto parameter = wanted.find(std::string(name));
    // A head under transformer. is nobody's.
    if (name == kHeadName && tensor != kHeadName)
      return Wrong(tensor, "no parameter of this model");
    if (parameter == wanted.end()) {
      if (name != kHeadName) return Wrong(tensor, "no parameter of this model");
      binding.tied_head = tensor;
      TESSERA_RETURN_IF_ERROR(
          CheckShape(tensor, stored_shape, Shape{config.vocab_size, config.hidden_size}));
      continue;
    }
    TESSERA_RETURN_IF_ERROR(CheckShape(tensor, stored_shape, parameter->second));
    const auto [bound, is_new] = binding.tensor_of.emplace(parameter->first, tensor);
    if (!is_new) {
      return Wrong(tensor, absl::StrCat("is there as ", QuotedForMessage(bound->second), " too"));
    }
  }
  for (const auto& [name, shape] : wanted) {
    if (!binding.tensor_of.contains(name)) {
      return Wrong(HfTensorName(config.family, name), "is missing");
    }
  }
  return binding;
}

}  // namespace tessera
