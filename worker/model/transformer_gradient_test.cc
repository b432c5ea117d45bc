// The model's loss and every gradient against the fp64 reference_model, in every family, head and
// element type; and what recomputation must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/fp32_copy.h"
#include "worker/model/reference_model.h"
#include "worker/model/transformer.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

using Matrix = std::vector<double>;

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
  absl::Status PrefetchParameters(absl::Span<const int>, Stream&) override {
    return absl::OkStatus();
  }
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
    scratch = std::make_unique<TransformerScratch>(*TransformerScratch::Create(
        config, TensorParallelLayout(), true, options, *device, *stream));
    activations = std::make_unique<TransformerActivations>(*TransformerActivations::Create(
        config, TensorParallelLayout(), model.chunk(), options, *scratch, *device));
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
    absl::Status status = model.Forward(*activations, *scratch, *stream);
    if (status.ok()) status = model.ForwardHead(*activations, *scratch, /*backward=*/true, *stream);
    if (status.ok()) status = model.Loss(*activations, *scratch, kScale, true, *stream);
    if (status.ok()) status = model.Backward(*activations, *scratch, *stream);
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
    return tessera::ReferenceLoss(config, weights, kTime, ids, targets, kScale);
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
  std::unique_ptr<TransformerScratch> scratch;
  std::unique_ptr<TransformerActivations> activations;
  ReferenceWeights weights;
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 10};
  const std::vector<int32_t> targets = {1, 4, -1, 5, 9, 2, 6, 5, 10, -1};
};

class TransformerGradient : public testing::TestWithParam<Case> {};

// Each fp32 loss has passed about 10 sums of at most 16 terms a layer: 2e-6 of a loss of about 3.
TEST_P(TransformerGradient, LossAgainstFp64) {
  Rig rig(GetParam().config, DType::kFloat32, DType::kFloat32);
  ASSERT_TRUE(rig.model.Forward(*rig.activations, *rig.scratch, *rig.stream).ok());
  ASSERT_TRUE(
      rig.model.ForwardHead(*rig.activations, *rig.scratch, /*backward=*/false, *rig.stream).ok());
  ASSERT_TRUE(rig.model.Loss(*rig.activations, *rig.scratch, Rig::kScale, false, *rig.stream).ok());
  double sum = 0;
  for (const float loss : rig.Get(rig.scratch->head.losses)) sum += Rig::kScale * loss;
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
      EXPECT_EQ(rig.Get(rig.scratch->head.losses), plain.Get(plain.scratch->head.losses));
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
