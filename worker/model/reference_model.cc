#include "worker/model/reference_model.h"

#include <cmath>

namespace tessera {
namespace {

using Matrix = std::vector<double>;
using Weights = ReferenceWeights;

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
Matrix Attention(const Matrix& q, const Matrix& k, const Matrix& v, const ModelConfig& config,
                 int64_t time) {
  const int64_t batch = static_cast<int64_t>(q.size()) / (time * config.heads * config.head_size());
  const int64_t size = config.head_size(), heads = config.heads, kv = config.num_kv_heads();
  Matrix y(q.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h * kv / heads;
      for (int64_t i = 0; i < time; ++i) {
        const int64_t row = b * time + i;
        std::vector<double> p(i + 1);
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (int64_t c = 0; c < size; ++c) {
            score += q[(row * heads + h) * size + c] * k[((b * time + j) * kv + g) * size + c];
          }
          sum += p[j] = std::exp(score / std::sqrt(static_cast<double>(size)));
        }
        for (int64_t j = 0; j <= i; ++j) {
          for (int64_t c = 0; c < size; ++c) {
            y[(row * heads + h) * size + c] += p[j] / sum * v[((b * time + j) * kv + g) * size + c];
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

void Rotate(const ModelConfig& config, int64_t time, int64_t rows, Matrix& x) {
  const int64_t size = config.head_size(), half = size / 2;
  const int64_t heads = static_cast<int64_t>(x.size()) / (rows * size);
  for (int64_t row = 0; row < rows; ++row) {
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
        const double angle = row % time * frequency;
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
  int64_t time;

  Matrix Gpt2Attention(const Matrix& x, const std::string& p) const {
    const int64_t c = config.hidden_size;
    const Matrix normalized =
        Normalize(x, w.at(p + "ln_1.weight"), w.at(p + "ln_1.bias"), config.norm_epsilon);
    const Matrix qkv =
        Affine(normalized, w.at(p + "attn.c_attn.weight"), w.at(p + "attn.c_attn.bias"));
    const Matrix heads = Attention(Columns(qkv, 3 * c, 0, c), Columns(qkv, 3 * c, c, c),
                                   Columns(qkv, 3 * c, 2 * c, c), config, time);
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
    const int64_t rows = static_cast<int64_t>(x.size()) / config.hidden_size;
    Rotate(config, time, rows, q);
    Rotate(config, time, rows, k);
    return Transposed(Attention(q, k, projected("v", config.num_kv_heads()), config, time),
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
      if (!is_llama) x[i] += w.at("wpe.weight")[i / c % time * c + i % c];
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

}  // namespace

double ReferenceLoss(const ModelConfig& config, const Weights& w, int64_t time,
                     const std::vector<int32_t>& ids, const std::vector<int32_t>& targets,
                     double scale) {
  const Matrix logits = ReferenceModel{config, w, time}.Logits(ids);
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

}  // namespace tessera
