#include "worker/model/initial_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/philox.h"

namespace tessera {
namespace {

uint64_t Fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

// (0, 1]: the logarithm of it is finite.
double OpenUniform(uint32_t bits) { return (static_cast<double>(bits) + 1.0) * 0x1p-32; }

std::array<double, 4> Normals(uint64_t block, uint64_t name_hash, uint64_t seed) {
  const std::array<uint32_t, 4> bits = PhiloxBlock(seed, name_hash, block);
  std::array<double, 4> normals;
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2.0 * std::log(OpenUniform(bits[2 * pair])));
    const double angle = 2.0 * std::numbers::pi * (bits[2 * pair + 1] * 0x1p-32);
    normals[2 * pair] = radius * std::cos(angle);
    normals[2 * pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

}  // namespace

void FillInitialValues(const ParameterSpec& parameter, uint64_t seed, int64_t begin,
                       absl::Span<float> values) {
  if (parameter.initializer != Initializer::kNormal) {
    std::fill(values.begin(), values.end(),
              parameter.initializer == Initializer::kOnes ? 1.0f : 0.0f);
    return;
  }
  const uint64_t name_hash = Fnv1a(parameter.name);
  std::array<double, 4> normals = {};
  for (int64_t j = 0; j < static_cast<int64_t>(values.size()); ++j) {
    const int64_t index = begin + j;
    if (j == 0 || index % 4 == 0) normals = Normals(index / 4, name_hash, seed);
    values[j] = static_cast<float>(parameter.standard_deviation * normals[index % 4]);
  }
}

}  // namespace tessera
