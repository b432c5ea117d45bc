// The model's loss and every gradient against an fp64 GPT-2 written here with plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "worker/model/gpt2.h"
#include "worker/model/initial_weights.h"
#include "worker/model/units.h"

namespace tessera {
namespace {

using Matrix = std::vector<double>;
using Weights = std::map<std::string, Matrix>;

constexpr int64_t kBatch = 2, kTime = 5;

ModelConfig Config() {
  ModelConfig config;
  config.vocab_size = 11;
  config.context_length = 6;
  config.layers = 2;
  config.heads = 3;
  config.hidden_size = 6;
  config.intermediate_size = 10;
  return config;
}

// y = x W + b for rows of x; W (in, out).
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

Matrix Attention(const Matrix& qkv, const ModelConfig& config) {
  const int64_t c = config.hidden_size, size = config.head_size();
  Matrix y(kBatch * kTime * c);
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < config.heads; ++h) {
      for (int64_t i = 0; i < kTime; ++i) {
        auto at = [&](int64_t t, int64_t part, int64_t k) {
          return qkv[(b * kTime + t) * 3 * c + part * c + h * size + k];
        };
        std::vector<double> p(i + 1);
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (int64_t k = 0; k < size; ++k) score += at(i, 0, k) * at(j, 1, k);
          sum += p[j] = std::exp(score / std::sqrt(static_cast<double>(size)));
        }
        for (int64_t j = 0; j <= i; ++j) {
          for (int64_t k = 0; k < size; ++k) {
            y[(b * kTime + i) * c + h * size + k] += p[j] / sum * at(j, 2, k);
          }
        }
      }
    }
  }
  return y;
}

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Sum of losses over targets >= 0, times scale.
double ReferenceLoss(const ModelConfig& config, const Weights& w, const std::vector<int32_t>& ids,
                     const std::vector<int32_t>& targets, double scale) {
  const int64_t c = config.hidden_size;
  Matrix x(ids.size() * c);
  for (size_t r = 0; r < ids.size(); ++r) {
    for (int64_t i = 0; i < c; ++i) {
      x[r * c + i] = w.at("wte.weight")[ids[r] * c + i] + w.at("wpe.weight")[r % kTime * c + i];
    }
  }
  auto add = [&](const Matrix& branch) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
  };
  for (int64_t l = 0; l < config.layers; ++l) {
    const std::string p = "h." + std::to_string(l) + ".";
    auto normalized = [&](const std::string& name) {
      return Normalize(x, w.at(p + name + ".weight"), w.at(p + name + ".bias"),
                       config.norm_epsilon);
    };
    auto affine = [&](const Matrix& input, const std::string& name) {
      return Affine(input, w.at(p + name + ".weight"), w.at(p + name + ".bias"));
    };
    add(affine(Attention(affine(normalized("ln_1"), "attn.c_attn"), config), "attn.c_proj"));
    Matrix hidden = affine(normalized("ln_2"), "mlp.c_fc");
    for (double& value : hidden) value = Gelu(value);
    add(affine(hidden, "mlp.c_proj"));
  }
  x = Normalize(x, w.at("ln_f.weight"), w.at("ln_f.bias"), config.norm_epsilon);
  double loss = 0;
  for (size_t r = 0; r < ids.size(); ++r) {
    if (targets[r] < 0) continue;
    double sum = 0, target = 0;
    for (int64_t v = 0; v < config.vocab_size; ++v) {
      double logit = 0;
      for (int64_t i = 0; i < c; ++i) logit += x[r * c + i] * w.at("wte.weight")[v * c + i];
      sum += std::exp(logit);
      if (v == targets[r]) target = logit;
    }
    loss += scale * (std::log(sum) - target);
  }
  return loss;
}

// Whole tensors on one device.
class PlainStore : public ParameterStore {
 public:
  PlainStore(const ModelConfig& config, Device& device, Stream& stream)
      : units_(Gpt2Units(config)), buffers_(device) {
    for (const UnitSpec& unit : units_) {
      parameters_.emplace_back();
      gradients_.emplace_back();
      for (const ParameterSpec& spec : unit.parameters) {
        parameters_.back().push_back(buffers_.New(DType::kFloat32, spec.shape, "parameter"));
        gradients_.back().push_back(buffers_.New(DType::kFloat32, spec.shape, "gradient"));
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

class Gpt2Gradient : public testing::Test {
 protected:
  Gpt2Gradient()
      : device_(*CpuDevice::Create("cpu:0", 16 << 20)),
        stream_(*device_->CreateStream()),
        store_(config_, *device_, *stream_),
        model_(config_, store_),
        activations_(*Gpt2Activations::Create(config_, kBatch, kTime, true, *device_)) {
    // Larger than GPT-2's start, so that no gradient is lost in rounding.
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (size_t u = 0; u < store_.units_.size(); ++u) {
      for (size_t i = 0; i < store_.units_[u].parameters.size(); ++i) {
        const ParameterSpec& spec = store_.units_[u].parameters[i];
        std::vector<float> values(spec.shape.num_elements());
        const bool norm = spec.initializer == Initializer::kOnes;
        for (float& v : values) v = static_cast<float>((norm ? 1 : 0) + 0.4 * normal(random));
        EXPECT_TRUE(device_
                        ->CopyIn(values.data(), store_.parameters_[u][i].size_bytes(),
                                 store_.parameters_[u][i], *stream_)
                        .ok());
        weights_[spec.name] = {values.begin(), values.end()};
      }
    }
    EXPECT_TRUE(device_->CopyIn(ids_.data(), 40, activations_.ids, *stream_).ok());
    EXPECT_TRUE(device_->CopyIn(targets_.data(), 40, activations_.targets, *stream_).ok());
  }

  absl::Status ForwardBackward() {
    absl::Status status = model_.Forward(activations_, *stream_);
    if (status.ok()) status = model_.Loss(activations_, kScale, true, *stream_);
    if (status.ok()) status = model_.Backward(activations_, *stream_);
    return status;
  }
  std::vector<float> Get(const Tensor& tensor) {
    std::vector<float> values(tensor.num_elements());
    EXPECT_TRUE(device_->CopyOut(tensor, values.data(), tensor.size_bytes(), *stream_).ok());
    return values;
  }

  static constexpr float kScale = 0.125f;
  const ModelConfig config_ = Config();
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  PlainStore store_;
  Gpt2 model_;
  Gpt2Activations activations_;
  Weights weights_;
  const std::vector<int32_t> ids_ = {3, 1, 4, 1, 5, 9, 2, 6, 5, 10};
  const std::vector<int32_t> targets_ = {1, 4, -1, 5, 9, 2, 6, 5, 10, -1};
};

// Each fp32 loss has passed about 10 sums of at most 11 terms a layer: 2e-6 of a loss of about 3.
TEST_F(Gpt2Gradient, LossAgainstFp64) {
  ASSERT_TRUE(model_.Forward(activations_, *stream_).ok());
  ASSERT_TRUE(model_.Loss(activations_, kScale, false, *stream_).ok());
  double sum = 0;
  for (const float loss : Get(activations_.head.losses)) sum += kScale * loss;
  EXPECT_NEAR(sum, ReferenceLoss(config_, weights_, ids_, targets_, kScale), 1e-5);
  EXPECT_EQ(store_.held_, 0);
}

// Central differences of the fp64 loss, h = 1e-5: error below 1e-8. The fp32 gradient errs by a few
// hundred roundings relative to the tensor's largest element: 2e-5 of it.
TEST_F(Gpt2Gradient, EveryElementAgainstFiniteDifferences) {
  ASSERT_TRUE(ForwardBackward().ok());
  for (size_t u = 0; u < store_.units_.size(); ++u) {
    for (size_t i = 0; i < store_.units_[u].parameters.size(); ++i) {
      const std::string& name = store_.units_[u].parameters[i].name;
      const std::vector<float> gradient = Get(store_.gradients_[u][i]);
      Matrix& w = weights_[name];
      Matrix expected(w.size());
      double largest = 0;
      for (size_t e = 0; e < w.size(); ++e) {
        constexpr double h = 1e-5;
        const double saved = w[e];
        w[e] = saved + h;
        const double up = ReferenceLoss(config_, weights_, ids_, targets_, kScale);
        w[e] = saved - h;
        const double down = ReferenceLoss(config_, weights_, ids_, targets_, kScale);
        w[e] = saved;
        expected[e] = (up - down) / (2 * h);
        largest = std::max(largest, std::abs(expected[e]));
      }
      EXPECT_GT(largest, 1e-3) << name;
      for (size_t e = 0; e < w.size(); ++e) {
        ASSERT_NEAR(gradient[e], expected[e], 2e-5 * largest) << name << "[" << e << "]";
      }
    }
  }
}

// += : a second backward doubles every gradient, bit for bit (x + x is exact); embeddings and sums
// of several terms are added in another order, so those get one rounding per term.
TEST_F(Gpt2Gradient, AccumulatesAndReportsUnitsLastFirst) {
  ASSERT_TRUE(ForwardBackward().ok());
  EXPECT_EQ(store_.ready_, (std::vector<int>{3, 2, 1, 0}));
  std::vector<std::vector<float>> once;
  for (const auto& unit : store_.gradients_) {
    for (const Tensor& tensor : unit) once.push_back(Get(tensor));
  }
  ASSERT_TRUE(ForwardBackward().ok());
  size_t k = 0;
  for (const auto& unit : store_.gradients_) {
    for (const Tensor& tensor : unit) {
      const std::vector<float> twice = Get(tensor);
      float largest = 0;
      for (const float value : once[k]) largest = std::max(largest, std::abs(value));
      for (size_t e = 0; e < twice.size(); ++e) {
        ASSERT_NEAR(twice[e], 2 * once[k][e], 2e-6f * largest);
      }
      ++k;
    }
  }
  EXPECT_EQ(store_.held_, 0);
}

}  // namespace
}  // namespace tessera
