// The number of threads changes no bit of any kernel's result: sizes span several blocks of each.
#include <gtest/gtest.h>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/conformance.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/squared_norm.h"

namespace tessera {
namespace {

using Outputs = std::vector<Tensor>;

struct Case {
  const char* name;
  // Runs one kernel; returns its outputs, none where it failed.
  Outputs (*run)(KernelRig& rig);
};

constexpr int64_t kRows = 700, kColumns = 150;

const Case kCases[] = {
    {"Matmul",
     [](KernelRig& r) -> Outputs {
       const Tensor c = r.New({kRows, 1100});
       const Tensor a = r.Put(r.Random(kRows * 70), {kRows, 70});
       const Tensor b = r.Put(r.Random(70 * 1100), {70, 1100});
       return Matmul(a, b, c, {}, *r.stream_).ok() ? Outputs{c} : Outputs{};
     }},
    {"MatmulLongSums",
     [](KernelRig& r) -> Outputs {
       MatmulOptions options;
       options.transpose_a = true;
       const Tensor c = r.New({8, 9});
       const Tensor a = r.Put(r.Random(5000 * 8), {5000, 8});
       const Tensor b = r.Put(r.Random(5000 * 9), {5000, 9});
       return Matmul(a, b, c, options, *r.stream_).ok() ? Outputs{c} : Outputs{};
     }},
    {"AddRowSum",
     [](KernelRig& r) -> Outputs {
       const Tensor sum = r.Put(r.Random(kColumns), {kColumns});
       const Tensor x = r.Put(r.Random(kRows * kColumns), {kRows, kColumns});
       return AddRowSum(x, sum, *r.stream_).ok() ? Outputs{sum} : Outputs{};
     }},
    {"EmbeddingBackward",
     [](KernelRig& r) -> Outputs {
       const Tensor ids = r.PutIds(r.RandomIds(kRows, 0, 4), {7, 100});
       const Tensor tokens = r.Put(r.Random(5 * kColumns), {5, kColumns});
       const Tensor positions = r.Put(r.Random(100 * kColumns), {100, kColumns});
       const Tensor dy = r.Put(r.Random(kRows * kColumns), {kRows, kColumns});
       return EmbeddingBackward(ids, dy, tokens, positions, *r.stream_).ok()
                  ? Outputs{tokens, positions}
                  : Outputs{};
     }},
    {"LayerNorm",
     [](KernelRig& r) -> Outputs {
       const Tensor x = r.Put(r.Random(kRows * kColumns), {kRows, kColumns});
       const Tensor weight = r.Put(r.Random(kColumns), {kColumns});
       const Tensor y = r.New({kRows, kColumns}), mean = r.New({kRows}), rstd = r.New({kRows});
       const Tensor dx = r.New({kRows, kColumns});
       const Tensor dw = r.Put(r.Random(kColumns), {kColumns});
       const Tensor db = r.Put(r.Random(kColumns), {kColumns});
       const bool ok =
           LayerNormForward(x, weight, weight, 1e-5f, y, mean, rstd, *r.stream_).ok() &&
           LayerNormBackward(y, x, weight, mean, rstd, Tensor(), dx, dw, db, *r.stream_).ok();
       return ok ? Outputs{y, mean, rstd, dx, dw, db} : Outputs{};
     }},
    {"Attention",
     [](KernelRig& r) -> Outputs {
       const AttentionShape s{2, 130, 4, 2, 8, 0.35f};
       const Tensor q = r.Put(r.Random(260 * 32), {260, 32}), dq = r.New({260, 32});
       const Tensor k = r.Put(r.Random(260 * 16), {260, 16}), dk = r.New({260, 16});
       const Tensor v = r.Put(r.Random(260 * 16), {260, 16}), dv = r.New({260, 16});
       const Tensor y = r.New({260, 32}), lse = r.New({2, 4, 130});
       const Tensor work = r.New({AttentionWorkspaceBytes(s, *r.device_)}, DType::kUInt8);
       const bool ok =
           CausalAttentionForward(s, q, k, v, y, lse, work, *r.stream_).ok() &&
           CausalAttentionBackward(s, q, k, v, y, lse, y, dq, dk, dv, work, *r.stream_).ok();
       return ok ? Outputs{y, lse, dq, dk, dv} : Outputs{};
     }},
    {"Gelu",
     [](KernelRig& r) -> Outputs {
       const Tensor x = r.Put(r.Random(30001), {30001}), y = r.New({30001}), dx = r.New({30001});
       const bool ok =
           GeluForward(x, y, *r.stream_).ok() && GeluBackward(x, y, dx, *r.stream_).ok();
       return ok ? Outputs{y, dx} : Outputs{};
     }},
    {"CrossEntropy",
     [](KernelRig& r) -> Outputs {
       CrossEntropyOptions options;
       options.num_classes = kColumns;
       options.overwrite_logits = true;
       const Tensor logits = r.Put(r.Random(kRows * kColumns), {kRows, kColumns});
       const Tensor targets = r.PutIds(r.RandomIds(kRows, -1, kColumns - 1), {kRows});
       const Tensor losses = r.New({kRows});
       return CrossEntropy(logits, targets, options, losses, *r.stream_).ok()
                  ? Outputs{logits, losses}
                  : Outputs{};
     }},
    {"FlatPasses",
     [](KernelRig& r) -> Outputs {
       const int64_t n = 50001;
       const Tensor p = r.Put(r.Random(n), {n}), g = r.Put(r.Random(n), {n});
       const Tensor m = r.Put(r.Random(n), {n}), v = r.Put(std::vector<float>(n, 1), {n});
       const Tensor norm = r.New({1});
       AdamWOptions options;
       options.learning_rate = 0.01;
       const bool ok = Add(p, g, p, *r.stream_).ok() && Scale(g, 0.7f, *r.stream_).ok() &&
                       AdamW(p, g, m, v, options, *r.stream_).ok() &&
                       SquaredNorm(p, norm, *r.stream_).ok();
       return ok ? Outputs{p, g, m, v, norm} : Outputs{};
     }},
};

class ThreadCount : public testing::TestWithParam<Case> {};

TEST_P(ThreadCount, ChangesNoBit) {
  std::vector<std::vector<float>> first;
  for (const Backend& backend : Backends()) {
    KernelRig rig(backend);
    const Outputs outputs = GetParam().run(rig);
    ASSERT_FALSE(outputs.empty()) << "the kernel failed";
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::vector<float> values = rig.Get(outputs[i]);
      if (first.size() == i) first.push_back(values);
      ASSERT_EQ(values, first[i]) << backend.name << " output " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ThreadCount, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
