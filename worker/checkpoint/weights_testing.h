// Small models and made-up weights for the tests of this folder.
#ifndef TESSERA_WORKER_CHECKPOINT_WEIGHTS_TESTING_H_
#define TESSERA_WORKER_CHECKPOINT_WEIGHTS_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "worker/checkpoint/hf_names.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/checkpoint/weight_writer.h"

namespace tessera {

inline std::string FreshFolder() {
  std::string path = testing::TempDir() + "/ckptXXXXXX";
  return mkdtemp(path.data());
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline HfConfig SmallGpt2() {
  HfConfig config;
  config.model.vocab_size = 131;
  config.model.context_length = 7;
  config.model.layers = 2;
  config.model.heads = config.model.kv_heads = 3;
  config.model.hidden_size = 12;
  config.model.intermediate_size = 48;
  return config;
}

inline HfConfig SmallLlama() {
  HfConfig config = SmallGpt2();
  config.model.family = ModelFamily::kLlama;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.head_dim = 6;
  config.model.tie_word_embeddings = false;
  config.model.rope_scaling = RopeScaling{8, 1, 4, 16};
  config.bos_token_id = 1;
  config.eos_token_ids = {2, 3};
  return config;
}

inline HfConfig SmallQwen2() {
  HfConfig config = SmallLlama();
  config.model.attention_bias = true;
  config.model.tie_word_embeddings = true;
  config.model.rope_scaling.reset();
  return config;
}

// A whole number of quarters, exact in every dtype, different for neighbours and parameters.
inline float MadeUpValue(absl::string_view name, int64_t element) {
  uint32_t mixed = static_cast<uint32_t>(element) * 2654435761u;
  for (const char letter : name) mixed = (mixed ^ static_cast<uint8_t>(letter)) * 16777619u;
  return (static_cast<float>(mixed >> 25) - 64) / 4;
}

inline ParameterSource MadeUpSource() {
  return [](absl::string_view name, int64_t offset, absl::Span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = MadeUpValue(name, offset + i);
    return absl::OkStatus();
  };
}

// Whole parameters and odd slices of them are what MadeUpSource gives.
inline void ExpectMadeUpWeights(const WeightReader& reader) {
  for (const ParameterSpec& parameter : reader.parameters()) {
    const int64_t size = parameter.shape.num_elements();
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, size},
                                     {size / 3, size},
                                     {1, size / 2 + 1},
                                     {size, size}}) {
      std::vector<float> values(end - begin);
      const absl::Status status =
          reader.ReadParameter(parameter.name, begin, absl::MakeSpan(values));
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t i = begin; i < end; ++i) {
        ASSERT_EQ(values[i - begin], MadeUpValue(parameter.name, i)) << parameter.name << " " << i;
      }
    }
    float value;
    EXPECT_EQ(reader.ReadParameter(parameter.name, size, {&value, 1}).code(),
              absl::StatusCode::kOutOfRange);
    EXPECT_EQ(reader.ReadParameter(parameter.name, -1, {&value, 1}).code(),
              absl::StatusCode::kOutOfRange);
  }
  EXPECT_EQ(reader.ReadParameter("none", 0, {}).code(), absl::StatusCode::kNotFound);
}

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_WEIGHTS_TESTING_H_
