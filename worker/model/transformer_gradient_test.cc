// The model's loss and every gradient against fp64 GPT-2 and Llama models written here with plain
// loops, in every family, head and element type; and what recomputation must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/fp32_copy.h"
#include "worker/model/transformer.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

using Matrix = std::vector<double>;
using Weights = std::map<std::string, Matrix>;

constexpr int64_t kBatch = 2, kTime = 5;

ModelConfig Gpt2Config() {
  ModelConfig config;
  config.vocab_size = 11;
  config.context_length = 6;
  config.layers = 2;
  config.heads = 3;
  config.hidden_size = 6;
  config.intermediate_size = 10;
  return config;
}

// Two query heads share each kv head; a head is not hidden_size / heads wide.
ModelConfig LlamaConfig() {
  ModelConfig config = Gpt2Config();
  config.family = ModelFamily::kLlama;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.norm_epsilon = 1e-6f;
  config.tie_word_embeddings = false;
  config.rope_theta = 100;
  return config;
}

ModelConfig Gpt2Untied() {
  ModelConfig config = Gpt2Config();
  config.tie_word_embeddings = false;
  return config;
}

// As Qwen2's and SmolLM2's: biases of q, k and v, tied; with Llama 3.1's scaling of frequencies.
ModelConfig LlamaBiasedTied() {
  ModelConfig config = LlamaConfig();
  config.attention_bias = true;
  config.tie_word_embeddings = true;
  config.rope_scaling = RopeScaling{4, 1, 2, 8};
  return config;
}

struct Case {
  const char* name;
  ModelConfig config;
};

std::vector<Case> Cases() {
  return {{"Gpt2", Gpt2Config()},
          {"Gpt2Untied", Gpt2Untied()},
          {"Llama", LlamaConfig()},
          {"LlamaBiasedTied", LlamaBiasedTied()}};
}

// y = x W + b for rows of x; W (in, out). Or x W^T, W (out, in), with out outputs.
Matrix Affine(const Matrix& x, const Matrix& w, const Matrix& b) {
  const size_t out = b.size(), in = w.size() / out, rows = x.size() / in;
  Matrix y(rows * out);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      double sum = b[o];
      for (size_t i = 0; i < in; ++i) sum += x[r * in + i] * w[i * out + o];
      y[r * out + o] = sum;
    }
  }
  return y;
}

Matrix Transposed(const Matrix& x, const Matrix& w, size_t out) {
  const size_t in = w.size() / out, rows = x.size() / in;
  Matrix y(rows * out);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * w[o * in + i];
    }
  }
  return y;
}

Matrix Normalize(const Matrix& x, const Matrix& weight, const Matrix& bias, double epsilon) {
  const size_t c = weight.size();
  Matrix y(x.size());
  for (size_t r = 0; r < x.size() / c; ++r) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < c; ++i) mean += x[r * c + i] / c;
    for (size_t i = 0; i < c; ++i) variance += std::pow(x[r * c + i] - mean, 2) / c;
    for (size_t i = 0; i < c; ++i) {
      y[r * c + i] = (x[r * c + i] - mean) / std::sqrt(variance + epsilon) * weight[i] + bias[i];
    }
  }
  return y;
}

Matrix RootMeanSquare(const Matrix& x, const Matrix& weight, double epsilon) {
  const size_t c = weight.size();
  Matrix y(x.size());
  for (size_t r = 0; r < x.size() / c; ++r) {
    double square = 0;
    for (size_t i = 0; i < c; ++i) square += x[r * c + i] * x[r * c + i] / c;
    for (size_t i = 0; i < c; ++i) {
      y[r * c + i] = x[r * c + i] / std::sqrt(square + epsilon) * weight[i];
    }
  }
  return y;
}

// q (rows, heads * size), k and v (rows, kv_heads * size).
Matrix Attention(const Matrix& q, const Matrix& k, const Matrix& v, const ModelConfig& config) {
  const int64_t size = config.head_size(), heads = config.heads, kv = config.num_kv_heads();
  Matrix y(q.size());
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h * kv / heads;
      for (int64_t i = 0; i < kTime; ++i) {
        const int64_t row = b * kTime + i;
        std::vector<double> p(i + 1);
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (int64_t c = 0; c < size; ++c) {
            score += q[(row * heads + h) * size + c] * k[((b * kTime + j) * kv + g) * size + c];
          }
          sum += p[j] = std::exp(score / std::sqrt(static_cast<double>(size)));
        }
        for (int64_t j = 0; j <= i; ++j) {
          for (int64_t c = 0; c < size; ++c) {
            y[(row * heads + h) * size + c] +=
                p[j] / sum * v[((b * kTime + j) * kv + g) * size + c];
          }
        }
      }
    }
  }
  return y;
}

// Columns [begin, begin + count) of a matrix of `columns`.
Matrix Columns(const Matrix& x, int64_t columns, int64_t begin, int64_t count) {
  Matrix y;
  for (size_t r = 0; r < x.size() / columns; ++r) {
    for (int64_t i = 0; i < count; ++i) y.push_back(x[r * columns + begin + i]);
  }
  return y;
}

void Rotate(const ModelConfig& config, Matrix& x) {
  const int64_t size = config.head_size(), half = size / 2;
  const int64_t heads = static_cast<int64_t>(x.size()) / (kBatch * kTime * size);
  for (int64_t row = 0; row < kBatch * kTime; ++row) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < half; ++j) {
        double frequency = std::pow(config.rope_theta, -2.0 * j / size);
        if (config.rope_scaling) {
          const RopeScaling& s = *config.rope_scaling;
          const double wavelength = 2 * M_PI / frequency, c = s.original_context_length;
          const double smooth =
              (c / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
          if (wavelength > c / s.low_freq_factor) {
            frequency /= s.factor;
          } else if (wavelength >= c / s.high_freq_factor) {
            frequency = (1 - smooth) * frequency / s.factor + smooth * frequency;
          }
        }
        const double angle = row % kTime * frequency;
        double& first = x[(row * heads + h) * size + j];
        double& second = x[(row * heads + h) * size + half + j];
        const double rotated = first * std::cos(angle) - second * std::sin(angle);
        second = second * std::cos(angle) + first * std::sin(angle);
        first = rotated;
      }
    }
  }
}

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// A layer's branches: what is added to the residual stream x.
struct ReferenceModel {
  const ModelConfig& config;
  const Weights& w;

  Matrix Gpt2Attention(const Matrix& x, const std::string& p) const {
    const int64_t c = config.hidden_size;
    const Matrix normalized =
        Normalize(x, w.at(p + "ln_1.weight"), w.at(p + "ln_1.bias"), config.norm_epsilon);
    const Matrix qkv =
        Affine(normalized, w.at(p + "attn.c_attn.weight"), w.at(p + "attn.c_attn.bias"));
    const Matrix heads = Attention(Columns(qkv, 3 * c, 0, c), Columns(qkv, 3 * c, c, c),
                                   Columns(qkv, 3 * c, 2 * c, c), config);
    return Affine(heads, w.at(p + "attn.c_proj.weight"), w.at(p + "attn.c_proj.bias"));
  }
  Matrix Gpt2Mlp(const Matrix& x, const std::string& p) const {
    const Matrix normalized =
        Normalize(x, w.at(p + "ln_2.weight"), w.at(p + "ln_2.bias"), config.norm_epsilon);
    Matrix hidden = Affine(normalized, w.at(p + "mlp.c_fc.weight"), w.at(p + "mlp.c_fc.bias"));
    for (double& value : hidden) value = Gelu(value);
    return Affine(hidden, w.at(p + "mlp.c_proj.weight"), w.at(p + "mlp.c_proj.bias"));
  }
  Matrix LlamaAttention(const Matrix& x, const std::string& p) const {
    const Matrix normalized =
        RootMeanSquare(x, w.at(p + "input_layernorm.weight"), config.norm_epsilon);
    auto projected = [&](const std::string& name, int64_t heads) {
      const int64_t out = heads * config.head_size();
      Matrix y = Transposed(normalized, w.at(p + "self_attn." + name + "_proj.weight"), out);
      if (!config.attention_bias) return y;
      const Matrix& bias = w.at(p + "self_attn." + name + "_proj.bias");
      for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % out];
      return y;
    };
    Matrix q = projected("q", config.heads), k = projected("k", config.num_kv_heads());
    Rotate(config, q);
    Rotate(config, k);
    return Transposed(Attention(q, k, projected("v", config.num_kv_heads()), config),
                      w.at(p + "self_attn.o_proj.weight"), config.hidden_size);
  }
  Matrix LlamaMlp(const Matrix& x, const std::string& p) const {
    const Matrix normalized =
        RootMeanSquare(x, w.at(p + "post_attention_layernorm.weight"), config.norm_epsilon);
    const int64_t f = config.intermediate_size;
    Matrix gate = Transposed(normalized, w.at(p + "mlp.gate_proj.weight"), f);
    const Matrix up = Transposed(normalized, w.at(p + "mlp.up_proj.weight"), f);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return Transposed(gate, w.at(p + "mlp.down_proj.weight"), config.hidden_size);
  }
  Matrix Embed(const std::vector<int32_t>& ids) const {
    const int64_t c = config.hidden_size;
    const bool is_llama = config.family == ModelFamily::kLlama;
    const Matrix& tokens = w.at(is_llama ? "model.embed_tokens.weight" : "wte.weight");
    Matrix x(ids.size() * c);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = tokens[ids[i / c] * c + i % c];
      if (!is_llama) x[i] += w.at("wpe.weight")[i / c % kTime * c + i % c];
    }
    return x;
  }
  Matrix Logits(const std::vector<int32_t>& ids) const {
    const bool is_llama = config.family == ModelFamily::kLlama;
    Matrix x = Embed(ids);
    auto add = [&](const Matrix& branch) {
      for (size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
    };
    for (int64_t l = 0; l < config.layers; ++l) {
      const std::string p = (is_llama ? "model.layers." : "h.") + std::to_string(l) + ".";
      add(is_llama ? LlamaAttention(x, p) : Gpt2Attention(x, p));
      add(is_llama ? LlamaMlp(x, p) : Gpt2Mlp(x, p));
    }
    x = is_llama ? RootMeanSquare(x, w.at("model.norm.weight"), config.norm_epsilon)
                 : Normalize(x, w.at("ln_f.weight"), w.at("ln_f.bias"), config.norm_epsilon);
    const char* tied = is_llama ? "model.embed_tokens.weight" : "wte.weight";
    return Transposed(x, w.at(config.tie_word_embeddings ? tied : "lm_head.weight"),
                      config.vocab_size);
  }
};

// Sum of losses over targets >= 0, times scale.
double ReferenceLoss(const ModelConfig& config, const Weights& w, const std::vector<int32_t>& ids,
                     const std::vector<int32_t>& targets, double scale) {
  const Matrix logits = ReferenceModel{config, w}.Logits(ids);
  double loss = 0;
  for (size_t r = 0; r < ids.size(); ++r) {
    if (targets[r] < 0) continue;
    double sum = 0;
    for (int64_t v = 0; v < config.vocab_size; ++v) {
      sum += std::exp(logits[r * config.vocab_size + v]);
    }
    loss += scale * (std::log(sum) - logits[r * config.vocab_size + targets[r]]);
  }
  return loss;
}

// Whole tensors on one device.
class PlainStore : public ParameterStore {
 public:
  PlainStore(const ModelConfig& config, DType dtype, DType gradient_dtype, Device& device,
             Stream& stream)
      : units_(Units(config)), buffers_(device) {
    for (const UnitSpec& unit : units_) {
      parameters_.emplace_back();
      gradients_.emplace_back();
      for (const ParameterSpec& spec : unit.parameters) {
        parameters_.back().push_back(buffers_.New(dtype, spec.shape, "parameter"));
        gradients_.back().push_back(buffers_.New(gradient_dtype, spec.shape, "gradient"));
        EXPECT_TRUE(device.SetZero(gradients_.back().back(), stream).ok());
      }
    }
  }
  const std::vector<UnitSpec>& units() const override { return units_; }
  absl::StatusOr<absl::Span<const Tensor>> AcquireParameters(int unit, Stream&) override {
    ++held_;
    return absl::MakeConstSpan(parameters_[unit]);
  }
  absl::Status ReleaseParameters(int, Stream&) override {
    --held_;
    return absl::OkStatus();
  }
  absl::Status PrefetchParameters(int, Stream&) override { return absl::OkStatus(); }
  absl::StatusOr<absl::Span<const Tensor>> AcquireGradients(int unit, Stream&) override {
    return absl::MakeConstSpan(gradients_[unit]);
  }
  absl::Status GradientsReady(int unit, Stream&) override {
    ready_.push_back(unit);
    return absl::OkStatus();
  }

  const std::vector<UnitSpec> units_;
  std::vector<std::vector<Tensor>> parameters_, gradients_;
  std::vector<int> ready_;
  int held_ = 0;

 private:
  ActivationBuffers buffers_;
};

// A model on a device, with weights of the given size, larger than a fresh model's, so that no
// gradient is lost in rounding. Weights are representable in dtype.
struct Rig {
  Rig(const ModelConfig& c, DType dtype, DType gradient_dtype, const RecomputePlan& recompute = {},
      double weight_size = 0.4)
      : config(c),
        device(*CpuDevice::Create("cpu:0", 16 << 20)),
        stream(*device->CreateStream()),
        store(config, dtype, gradient_dtype, *device, *stream),
        model(config, store) {
    ActivationOptions options;
    options.batch = kBatch;
    options.time = kTime;
    options.backward = true;
    options.dtype = dtype;
    options.recompute = recompute;
    activations = std::make_unique<TransformerActivations>(
        *TransformerActivations::Create(config, options, *device));
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (size_t u = 0; u < store.units_.size(); ++u) {
      for (size_t i = 0; i < store.units_[u].parameters.size(); ++i) {
        const ParameterSpec& spec = store.units_[u].parameters[i];
        std::vector<float> values(spec.shape.num_elements());
        const bool norm = spec.initializer == Initializer::kOnes;
        for (float& v : values)
          v = static_cast<float>((norm ? 1 : 0) + weight_size * normal(random));
        const Tensor& tensor = store.parameters_[u][i];
        EXPECT_TRUE(CopyInFp32(values, tensor, *stream).ok());
        const std::vector<float> rounded = Get(tensor);
        weights[spec.name] = {rounded.begin(), rounded.end()};
      }
    }
    EXPECT_TRUE(device->CopyIn(ids.data(), 40, activations->ids, *stream).ok());
    EXPECT_TRUE(device->CopyIn(targets.data(), 40, activations->targets, *stream).ok());
  }

  absl::Status ForwardBackward() {
    absl::Status status = model.Forward(*activations, *stream);
    if (status.ok()) status = model.Loss(*activations, kScale, true, *stream);
    if (status.ok()) status = model.Backward(*activations, *stream);
    return status;
  }
  std::vector<float> Get(const Tensor& tensor) {
    std::vector<float> values(tensor.num_elements());
    EXPECT_TRUE(CopyOutFp32(tensor, absl::MakeSpan(values), *stream).ok());
    return values;
  }
  std::vector<std::vector<float>> Gradients() {
    std::vector<std::vector<float>> all;
    for (const auto& unit : store.gradients_) {
      for (const Tensor& tensor : unit) all.push_back(Get(tensor));
    }
    return all;
  }
  double ReferenceLoss() const {
    return tessera::ReferenceLoss(config, weights, ids, targets, kScale);
  }
  // Central differences of the fp64 loss, h = 1e-5: error below 1e-8.
  Matrix ReferenceGradient(const std::string& name) {
    Matrix& w = weights[name];
    Matrix gradient(w.size());
    for (size_t e = 0; e < w.size(); ++e) {
      constexpr double h = 1e-5;
      const double saved = w[e];
      w[e] = saved + h;
      const double up = ReferenceLoss();
      w[e] = saved - h;
      gradient[e] = (up - ReferenceLoss()) / (2 * h);
      w[e] = saved;
    }
    return gradient;
  }

  static constexpr float kScale = 0.125f;
  const ModelConfig config;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  PlainStore store;
  Transformer model;
  std::unique_ptr<TransformerActivations> activations;
  Weights weights;
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 10};
  const std::vector<int32_t> targets = {1, 4, -1, 5, 9, 2, 6, 5, 10, -1};
};

class TransformerGradient : public testing::TestWithParam<Case> {};

// Each fp32 loss has passed about 10 sums of at most 16 terms a layer: 2e-6 of a loss of about 3.
TEST_P(TransformerGradient, LossAgainstFp64) {
  Rig rig(GetParam().config, DType::kFloat32, DType::kFloat32);
  ASSERT_TRUE(rig.model.Forward(*rig.activations, *rig.stream).ok());
  ASSERT_TRUE(rig.model.Loss(*rig.activations, Rig::kScale, false, *rig.stream).ok());
  double sum = 0;
  for (const float loss : rig.Get(rig.activations->head.losses)) sum += Rig::kScale * loss;
  EXPECT_NEAR(sum, rig.ReferenceLoss(), 1e-5);
  EXPECT_EQ(rig.store.held_, 0);
}

double Norm(const Matrix& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// The fp32 gradient errs by a few hundred roundings relative to the tensor's largest element: 2e-5
// of it.
TEST_P(TransformerGradient, EveryElementAgainstFiniteDifferences) {
  Rig rig(GetParam().config, DType::kFloat32, DType::kFloat32);
  ASSERT_TRUE(rig.ForwardBackward().ok());
  for (size_t u = 0; u < rig.store.units_.size(); ++u) {
    for (size_t i = 0; i < rig.store.units_[u].parameters.size(); ++i) {
      const std::string& name = rig.store.units_[u].parameters[i].name;
      const std::vector<float> gradient = rig.Get(rig.store.gradients_[u][i]);
      const Matrix expected = rig.ReferenceGradient(name);
      double largest = 0;
      for (const double value : expected) largest = std::max(largest, std::abs(value));
      // A key's bias moves all scores of a row alike, so its gradient vanishes without rotation.
      EXPECT_GT(largest, 1e-3) << name;
      for (size_t e = 0; e < expected.size(); ++e) {
        ASSERT_NEAR(gradient[e], expected[e], 2e-5 * largest) << name << "[" << e << "]";
      }
    }
  }
}

// 16-bit types: on its way through two layers, forward and backward, a gradient passes about 40
// tensors that are rounded (u = 2^-8 for bf16, 2^-11 for fp16), whose errors are independent:
// sqrt(40) u = 6.3 u of its norm. Norms and softmax amplify by up to about 4 in a model this small:
// 25 u. A key moves all scores of a row alike but for the rotation, so the
// terms of its gradients nearly cancel: their errors are those of terms as large as the query's.
TEST_P(TransformerGradient, SixteenBitGradientsAgainstFp64) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const double u = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
    for (const DType gradient_dtype : {dtype, DType::kFloat32}) {
      Rig rig(GetParam().config, dtype, gradient_dtype, {}, 0.25);
      ASSERT_TRUE(rig.ForwardBackward().ok());
      for (size_t unit = 0; unit < rig.store.units_.size(); ++unit) {
        for (size_t i = 0; i < rig.store.units_[unit].parameters.size(); ++i) {
          const std::string& name = rig.store.units_[unit].parameters[i].name;
          const std::vector<float> gradient = rig.Get(rig.store.gradients_[unit][i]);
          Matrix expected = rig.ReferenceGradient(name);
          double norm = Norm(expected);
          if (const size_t k = name.find("k_proj"); k != std::string::npos) {
            std::string query = name;
            query[k] = 'q';
            norm = std::max(norm, Norm(rig.ReferenceGradient(query)));
          }
          for (size_t e = 0; e < expected.size(); ++e) expected[e] -= gradient[e];
          EXPECT_LT(Norm(expected), 25 * u * norm)
              << name << " in " << DTypeName(dtype) << ", accumulated in "
              << DTypeName(gradient_dtype);
        }
      }
    }
  }
}

// += : a second backward doubles every gradient, bit for bit (x + x is exact); embeddings and sums
// of several terms are added in another order, so those get one rounding per term.
TEST_P(TransformerGradient, AccumulatesAndReportsUnitsLastFirst) {
  Rig rig(GetParam().config, DType::kFloat32, DType::kFloat32);
  ASSERT_TRUE(rig.ForwardBackward().ok());
  EXPECT_EQ(rig.store.ready_, (std::vector<int>{3, 2, 1, 0}));
  const std::vector<std::vector<float>> once = rig.Gradients();
  ASSERT_TRUE(rig.ForwardBackward().ok());
  const std::vector<std::vector<float>> twice = rig.Gradients();
  for (size_t k = 0; k < once.size(); ++k) {
    float largest = 0;
    for (const float value : once[k]) largest = std::max(largest, std::abs(value));
    for (size_t e = 0; e < once[k].size(); ++e) {
      ASSERT_NEAR(twice[k][e], 2 * once[k][e], 2e-6f * largest);
    }
  }
  EXPECT_EQ(rig.store.held_, 0);
}

TEST_P(TransformerGradient, RecomputationChangesNoBitAndSavesMemory) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Rig plain(GetParam().config, dtype, dtype);
    ASSERT_TRUE(plain.ForwardBackward().ok());
    const auto gradients = plain.Gradients();
    const int64_t bytes = plain.device->arena().usage().current_bytes;
    for (const RecomputePlan& plan :
         {RecomputePlan{Recompute::kAttention, 0, 2}, RecomputePlan{Recompute::kFull, 0, 2},
          RecomputePlan{Recompute::kFull, 1, 1}}) {
      Rig rig(GetParam().config, dtype, dtype, plan);
      ASSERT_TRUE(rig.ForwardBackward().ok());
      EXPECT_EQ(rig.Get(rig.activations->head.losses), plain.Get(plain.activations->head.losses));
      EXPECT_EQ(rig.Gradients(), gradients);
      // One layer that shares with nobody saves nothing.
      if (plan.num_layers > 1) {
        EXPECT_LT(rig.device->arena().usage().current_bytes, bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TransformerGradient, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
