// Each kernel's rate beside this machine's limit, measured in the same run: for products what
// oneDNN's sgemm reaches by itself, for passes over memory what a copy reaches.
//
//   bazel run //tests/bench:kernels_bench -- [--json=FILE] [--threads=2]
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/rmsnorm.h"
#include "kernels/rotary.h"
#include "kernels/squared_norm.h"
#include "kernels/swiglu.h"
#include "tests/bench/copy_bandwidth.h"

ABSL_FLAG(std::string, json, "", "File to write the figures to as one JSON object");
ABSL_FLAG(int, threads, 2, "Threads of the device");
ABSL_FLAG(int, rounds, 5, "Measurements of each kernel, of which the best counts");
ABSL_FLAG(int, divisor, 1, "Divides the sizes: a quick run says nothing about speed");
ABSL_FLAG(bool, processor_time, false,
          "Measure kernels and sgemm in processor time per thread, which a busy machine changes "
          "little; copies remain in wall time");
ABSL_FLAG(std::string, only, "", "Only kernels whose names contain this");

namespace tessera {
namespace {

struct Row {
  std::string kernel;
  DType dtype;
  bool product;  // GFLOP/s, else GB/s
  double rate;
};

double Seconds() {
  if (absl::GetFlag(FLAGS_processor_time)) {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / absl::GetFlag(FLAGS_threads);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Best of several rounds of at least a tenth of a second.
double BestSeconds(const std::function<void()>& run) {
  run();
  double best = HUGE_VAL;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    int count = 0;
    const double start = Seconds();
    double end = start;
    for (; end - start < 0.1; end = Seconds(), ++count) run();
    best = std::min(best, (end - start) / count);
  }
  return best;
}

int64_t Scaled(int64_t size) { return std::max<int64_t>(8, size / absl::GetFlag(FLAGS_divisor)); }

double SgemmGflops(int threads) {
  const int64_t m = Scaled(2048), n = Scaled(3072), k = Scaled(768);
  const std::vector<float> a(m * k, 0.5f), b(k * n, 0.25f);
  std::vector<float> c(m * n);
  omp_set_num_threads(threads);
  return 2.0 * m * n * k * 1e-9 / BestSeconds([&] {
           dnnl_sgemm('N', 'N', m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n);
         });
}

// Measures kernels on tensors of one element type; memory goes with it.
class Bench {
 public:
  Bench(Device& device, Stream& stream, DType dtype, std::vector<Row>* rows)
      : device_(device), stream_(stream), dtype_(dtype), rows_(rows) {}

  // Normal values of about 1; ids in [0, 1000).
  Tensor New(Shape shape, DType dtype) {
    auto buffer = device_.Allocate(shape.num_elements() * DTypeSizeBytes(dtype),
                                   MemoryCategory::kWorkspace, "bench");
    if (!buffer.ok()) Fail("allocation", buffer.status());
    buffers_.push_back(*std::move(buffer));
    const Tensor tensor = buffers_.back().View(dtype, shape);
    if (dtype == DType::kUInt8) return tensor;
    // A repeated pattern: values matter little, zeros and subnormals a lot.
    const int64_t count = std::min<int64_t>(shape.num_elements(), 1 << 16);
    std::vector<float> values(count);
    std::vector<int32_t> ids(count);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(normal_(random_));
      ids[i] = static_cast<int32_t>(random_() % 1000);
    }
    const Tensor flat = tensor.Reshape({shape.num_elements()});
    for (int64_t begin = 0; begin < shape.num_elements(); begin += count) {
      Fill(flat.Slice(begin, std::min(count, shape.num_elements() - begin)), values, ids);
    }
    return tensor;
  }
  Tensor New(Shape shape) { return New(shape, dtype_); }
  Tensor Floats(Shape shape) { return New(shape, DType::kFloat32); }

  void Product(const std::string& name, double flops, const std::function<absl::Status()>& run) {
    Measure(name, true, flops, run);
  }
  // bytes: what has to be read and written.
  void Pass(const std::string& name, double bytes, const std::function<absl::Status()>& run) {
    Measure(name, false, bytes, run);
  }
  bool Wanted(const std::string& name) const {
    return absl::StrContains(name, absl::GetFlag(FLAGS_only));
  }

  Device& device() const { return device_; }
  Stream& stream() const { return stream_; }
  DType dtype() const { return dtype_; }
  double element_bytes() const { return static_cast<double>(DTypeSizeBytes(dtype_)); }

 private:
  [[noreturn]] static void Fail(const std::string& what, const absl::Status& status) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), status.ToString().c_str());
    std::exit(1);
  }
  void Check(const std::string& what, const absl::Status& status) {
    if (!status.ok()) Fail(what, status);
  }
  void Fill(const Tensor& to, const std::vector<float>& values, const std::vector<int32_t>& ids) {
    const int64_t count = to.num_elements();
    if (to.dtype() == DType::kInt32) {
      return Check("copy", device_.CopyIn(ids.data(), count * 4, to, stream_));
    }
    if (to.dtype() == DType::kFloat32) {
      return Check("copy", device_.CopyIn(values.data(), count * 4, to, stream_));
    }
    auto buffer = device_.Allocate(count * 4, MemoryCategory::kWorkspace, "bench");
    if (!buffer.ok()) Fail("allocation", buffer.status());
    const Tensor floats = buffer->View(DType::kFloat32, {count});
    Check("copy", device_.CopyIn(values.data(), count * 4, floats, stream_));
    Check("cast", Cast(floats, to, stream_));
  }
  void Measure(const std::string& name, bool product, double amount,
               const std::function<absl::Status()>& run) {
    if (!Wanted(name)) return;
    const double seconds = BestSeconds([&] { Check(name, run()); });
    rows_->push_back({name, dtype_, product, amount * 1e-9 / seconds});
  }

  Device& device_;
  Stream& stream_;
  const DType dtype_;
  std::vector<Row>* rows_;
  std::mt19937 random_{1};
  std::normal_distribution<double> normal_;
  std::vector<DeviceBuffer> buffers_;
};

// Forward y = x w, the two gradients of it, gradients of weights in fp32.
void BenchLinear(Bench& b, const std::string& name, int64_t m, int64_t k, int64_t n) {
  if (!b.Wanted(name)) return;
  m = Scaled(m), k = Scaled(k), n = Scaled(n);
  const Tensor x = b.New({m, k}), w = b.New({k, n}), y = b.New({m, n}), dw = b.Floats({k, n});
  MatmulOptions input, weight;
  input.transpose_b = true;
  weight.transpose_a = weight.accumulate = true;
  const double flops = 2.0 * m * n * k;
  b.Product(name + " forward", flops, [&] { return Matmul(x, w, y, {}, b.stream()); });
  b.Product(name + " d_input", flops, [&] { return Matmul(y, w, x, input, b.stream()); });
  b.Product(name + " d_weight", flops, [&] { return Matmul(x, y, dw, weight, b.stream()); });
}

void BenchAttention(Bench& b) {
  AttentionShape s{2, Scaled(1024), 12, 12, 64, 0.125f};
  const int64_t rows = s.batch * s.time, width = s.heads * s.head_size;
  const Tensor qkv = b.New({rows, 3 * width}), d_qkv = b.New({rows, 3 * width});
  const Tensor y = b.New({rows, width}), lse = b.Floats({s.batch, s.heads, s.time});
  const Tensor dy = b.New({rows, width});
  const Tensor work = b.New({AttentionWorkspaceBytes(s, b.device(), b.dtype())}, DType::kUInt8);
  const auto part = [&](const Tensor& t, int i) { return t.Columns(i * width, width); };
  // Two products of the causal half forward, five backward.
  const double flops = 2.0 * s.batch * s.heads * s.head_size * s.time * s.time / 2;
  b.Product("attention forward", 2 * flops, [&] {
    return AttentionForward(s, part(qkv, 0), part(qkv, 1), part(qkv, 2), y, lse, work, b.stream());
  });
  b.Product("attention backward", 5 * flops, [&] {
    return AttentionBackward(s, part(qkv, 0), part(qkv, 1), part(qkv, 2), y, lse, dy,
                             part(d_qkv, 0), part(d_qkv, 1), part(d_qkv, 2), work, b.stream());
  });
}

void BenchNorms(Bench& b) {
  const int64_t m = Scaled(16384), c = 768;
  const double bytes = b.element_bytes() * m * c;
  const Tensor x = b.New({m, c}), y = b.New({m, c}), add = b.New({m, c}), dx = b.New({m, c});
  const Tensor w = b.New({c}), bias = b.New({c}), dw = b.Floats({c}), db = b.Floats({c});
  const Tensor mean = b.Floats({m}), rstd = b.Floats({m});
  b.Pass("layernorm forward", 2 * bytes,
         [&] { return LayerNormForward(x, w, bias, 1e-5f, y, mean, rstd, b.stream()); });
  b.Pass("layernorm backward", 4 * bytes,
         [&] { return LayerNormBackward(y, x, w, mean, rstd, add, dx, dw, db, b.stream()); });
  b.Pass("rmsnorm forward", 2 * bytes,
         [&] { return RmsNormForward(x, w, 1e-5f, y, rstd, b.stream()); });
  b.Pass("rmsnorm backward", 4 * bytes,
         [&] { return RmsNormBackward(y, x, w, rstd, add, dx, dw, b.stream()); });
}

void BenchElementwise(Bench& b) {
  const int64_t m = Scaled(8192), c = 2048;
  const double bytes = b.element_bytes() * m * c;
  const Tensor x = b.New({m, c}), y = b.New({m, c}), z = b.New({m, c});
  const Tensor floats = b.Floats({m, c}), table = b.Floats({m, 128}), norm = b.Floats({1});
  b.Pass("gelu forward", 2 * bytes, [&] { return GeluForward(x, y, b.stream()); });
  b.Pass("gelu backward", 3 * bytes, [&] { return GeluBackward(x, y, z, b.stream()); });
  b.Pass("swiglu forward", 3 * bytes, [&] { return SwiGluForward(x, y, z, b.stream()); });
  b.Pass("swiglu backward", 5 * bytes, [&] { return SwiGluBackward(x, y, z, x, y, b.stream()); });
  b.Pass("dropout", 2 * bytes, [&] { return Dropout(x, {0.1f, 1, 2}, y, b.stream()); });
  b.Pass("rotary", 2 * bytes, [&] { return Rotary(table, false, x, b.stream()); });
  b.Pass("add", 3 * bytes, [&] { return Add(x, y, z, b.stream()); });
  b.Pass("scale", 2 * bytes, [&] { return Scale(x, 1, b.stream()); });
  b.Pass("cast from float32", bytes + 4.0 * m * c, [&] { return Cast(floats, x, b.stream()); });
  b.Pass("squared norm", bytes, [&] { return SquaredNorm(x.Reshape({m * c}), norm, b.stream()); });
  b.Pass("row sum", bytes,
         [&] { return AddRowSum(x, table.Reshape({m * 128}).Slice(0, c), b.stream()); });
}

void BenchTokens(Bench& b) {
  const int64_t m = Scaled(1024), c = 768, vocab = std::max<int64_t>(1000, Scaled(50304));
  const Tensor logits = b.New({m, vocab}), losses = b.Floats({m});
  const Tensor ids = b.New({1, m}, DType::kInt32), table = b.New({1000, c}), x = b.New({m, c});
  const Tensor positions = b.New({m, c}), gradient = b.Floats({1000, c});
  const Tensor position_gradient = b.Floats({m, c});
  CrossEntropyOptions options;
  options.num_classes = vocab;
  options.gradient_scale = 1e-3f;
  options.overwrite_logits = true;
  const double bytes = b.element_bytes() * m * c;
  b.Pass("cross entropy", 2 * b.element_bytes() * m * vocab, [&] {
    // Ids are below 1000.
    return CrossEntropy(logits, ids.Reshape({m}), options, losses, b.stream());
  });
  b.Pass("embedding forward", 3 * bytes,
         [&] { return EmbeddingForward(ids, table, positions, x, {}, b.stream()); });
  b.Pass("embedding backward", 2 * bytes + 16.0 * m * c,
         [&] { return EmbeddingBackward(ids, x, gradient, position_gradient, {}, b.stream()); });
}

// Master weights and moments in fp32, gradient and copy in the element type.
void BenchAdamW(Bench& b) {
  if (!b.Wanted("adamw")) return;
  // Half of GPT-2 124M's parameters: at a power of two the buffers would take turns in the same
  // places of the cache, which ZeroOptimizer avoids.
  const int64_t n = Scaled(124439808 / 2);
  const Tensor p = b.Floats({n}), m = b.Floats({n}), v = b.Floats({n}), g = b.New({n});
  (void)b.device().SetZero(v, b.stream());
  AdamWOptions options;
  options.learning_rate = 1e-4;
  double bytes = 24 + b.element_bytes();
  if (b.dtype() != DType::kFloat32) {
    options.low_precision_parameter = b.New({n});
    bytes += b.element_bytes();
  }
  b.Pass("adamw", bytes * n, [&] { return AdamW(p, g, m, v, options, b.stream()); });
}

std::vector<Row> RunAll(int threads) {
  std::vector<Row> rows;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const auto& part : std::vector<std::function<void(Bench&)>>{
             [](Bench& b) { BenchLinear(b, "matmul 2048 768 3072", 2048, 768, 3072); },
             [](Bench& b) { BenchLinear(b, "gpt2 qkv", 1024, 768, 2304); },
             [](Bench& b) { BenchLinear(b, "gpt2 projection", 1024, 768, 768); },
             [](Bench& b) { BenchLinear(b, "gpt2 mlp up", 1024, 768, 3072); },
             [](Bench& b) { BenchLinear(b, "gpt2 mlp down", 1024, 3072, 768); },
             [](Bench& b) { BenchLinear(b, "gpt2 head", 1024, 768, 50257); }, BenchAttention,
             BenchNorms, BenchElementwise, BenchTokens, BenchAdamW}) {
      // A fresh device for each, so that memory is given back.
      auto device = CpuDevice::Create("cpu:0", int64_t{3} << 30, threads);
      auto stream = device.ok() ? (*device)->CreateStream() : device.status();
      if (!stream.ok()) {
        std::fprintf(stderr, "%s\n", stream.status().ToString().c_str());
        std::exit(1);
      }
      Bench bench(**device, **stream, dtype, &rows);
      part(bench);
    }
  }
  return rows;
}

bool WriteJson(const std::string& path, int threads, double gflops, double gbps,
               const std::vector<Row>& rows) {
  std::string text = absl::StrCat("{\"threads\": ", threads, ", \"sgemm_gflops\": ", gflops,
                                  ", \"copy_gbps\": ", gbps, ", \"runs\": [");
  const char* separator = "";
  for (const Row& row : rows) {
    const double limit = row.product ? gflops : gbps;
    absl::StrAppend(&text, separator, "\n  {\"kernel\": \"", row.kernel, "\", \"dtype\": \"",
                    DTypeName(row.dtype), "\", \"unit\": \"", row.product ? "GFLOP/s" : "GB/s",
                    "\", \"rate\": ", row.rate, ", \"limit\": ", limit,
                    ", \"ratio\": ", row.rate / limit, "}");
    separator = ",";
  }
  absl::StrAppend(&text, "\n]}\n");
  FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  const bool written = std::fputs(text.c_str(), file) >= 0;
  return std::fclose(file) == 0 && written;
}

int Main() {
  const int threads = absl::GetFlag(FLAGS_threads);
  // First, as it forks.
  const double gbps = MeasureCopyBandwidth(threads).best_gbps();
  const double gflops = SgemmGflops(threads);
  std::printf("%d threads; sgemm alone %.1f GFLOP/s, copy %.1f GB/s\n", threads, gflops, gbps);
  const std::vector<Row> rows = RunAll(threads);
  for (const Row& row : rows) {
    const double limit = row.product ? gflops : gbps;
    std::printf("%-32s %-9s %8.1f %-7s %5.0f%% of %.1f\n", row.kernel.c_str(), DTypeName(row.dtype),
                row.rate, row.product ? "GFLOP/s" : "GB/s", 100 * row.rate / limit, limit);
  }
  const std::string json = absl::GetFlag(FLAGS_json);
  if (!json.empty() && !WriteJson(json, threads, gflops, gbps, rows)) {
    std::fprintf(stderr, "%s: cannot be written\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tessera::Main();
}
