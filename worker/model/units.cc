#include "worker/model/units.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

ParameterSpec Matrix(std::string name, Shape shape, double standard_deviation) {
  return {std::move(name), shape, Initializer::kNormal, standard_deviation, /*decays=*/true};
}

ParameterSpec Vector(std::string name, int64_t size, Initializer initializer) {
  return {std::move(name), Shape{size}, initializer, 0, /*decays=*/false};
}

}  // namespace

std::vector<UnitSpec> Gpt2Units(const ModelConfig& config) {
  const int64_t c = config.hidden_size, f = config.intermediate_size;
  const double range = config.initializer_range;
  const double residual_range = range / std::sqrt(2.0 * static_cast<double>(config.layers));
  std::vector<UnitSpec> units;
  units.push_back({"embedding",
                   {Matrix("wte.weight", {config.vocab_size, c}, range),
                    Matrix("wpe.weight", {config.context_length, c}, range)}});
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = absl::StrCat("h.", i, ".");
    units.push_back({absl::StrCat("layer.", i),
                     {Vector(prefix + "ln_1.weight", c, Initializer::kOnes),
                      Vector(prefix + "ln_1.bias", c, Initializer::kZeros),
                      Matrix(prefix + "attn.c_attn.weight", {c, 3 * c}, range),
                      Vector(prefix + "attn.c_attn.bias", 3 * c, Initializer::kZeros),
                      Matrix(prefix + "attn.c_proj.weight", {c, c}, residual_range),
                      Vector(prefix + "attn.c_proj.bias", c, Initializer::kZeros),
                      Vector(prefix + "ln_2.weight", c, Initializer::kOnes),
                      Vector(prefix + "ln_2.bias", c, Initializer::kZeros),
                      Matrix(prefix + "mlp.c_fc.weight", {c, f}, range),
                      Vector(prefix + "mlp.c_fc.bias", f, Initializer::kZeros),
                      Matrix(prefix + "mlp.c_proj.weight", {f, c}, residual_range),
                      Vector(prefix + "mlp.c_proj.bias", c, Initializer::kZeros)}});
  }
  units.push_back({"head",
                   {Vector("ln_f.weight", c, Initializer::kOnes),
                    Vector("ln_f.bias", c, Initializer::kZeros)}});
  return units;
}

}  // namespace tessera
