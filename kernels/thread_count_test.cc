// The number of threads changes no bit of any kernel's result: sizes span several blocks of each.
#include <gtest/gtest.h>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/attention_merge.h"
#include "kernels/cast.h"
#include "kernels/conformance.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/matrix_copy.h"
#include "kernels/rmsnorm.h"
#include "kernels/rotary.h"
#include "kernels/squared_norm.h"
#include "kernels/swiglu.h"

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
       const Tensor c = r.New({1100, 1600});
       const Tensor a = r.Put(r.Random(1100 * 70), {1100, 70});
       const Tensor b = r.Put(r.Random(70 * 1600), {70, 1600});
       return Matmul(a, b, c, {}, *r.stream_).ok() ? Outputs{c} : Outputs{};
     }},
    {"Matmul16Bit",
     [](KernelRig& r) -> Outputs {
       Outputs outputs;
       for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
         const Tensor a = r.Put(r.Random(1100 * 70), {1100, 70}, dtype);
         const Tensor b = r.Put(r.Random(70 * 1600), {70, 1600}, dtype);
         for (const DType out : {dtype, DType::kFloat32}) {
           outputs.push_back(r.New({1100, 1600}, out));
           if (!Matmul(a, b, outputs.back(), {}, *r.stream_).ok()) return {};
         }
       }
       return outputs;
     }},
    {"Matmul16BitLongSums",
     [](KernelRig& r) -> Outputs {
       MatmulOptions options;
       options.transpose_a = true;
       options.accumulate = true;
       const Tensor c = r.Put(r.Random(72), {8, 9});
       const Tensor a = r.Put(r.Random(5000 * 8), {5000, 8}, DType::kBFloat16);
       const Tensor b = r.Put(r.Random(5000 * 9), {5000, 9}, DType::kBFloat16);
       return Matmul(a, b, c, options, *r.stream_).ok() ? Outputs{c} : Outputs{};
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
       return EmbeddingBackward(ids, dy, tokens, positions, {}, *r.stream_).ok()
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
    {"RmsNorm",
     [](KernelRig& r) -> Outputs {
       const DType type = DType::kBFloat16;
       const Tensor x = r.Put(r.Random(kRows * kColumns), {kRows, kColumns}, type);
       const Tensor weight = r.Put(r.Random(kColumns), {kColumns}, type);
       const Tensor y = r.New({kRows, kColumns}, type), rstd = r.New({kRows});
       const Tensor dx = r.New({kRows, kColumns}, type);
       const Tensor dw = r.Put(r.Random(kColumns), {kColumns});
       const bool ok = RmsNormForward(x, weight, 1e-5f, y, rstd, *r.stream_).ok() &&
                       RmsNormBackward(y, x, weight, rstd, Tensor(), dx, dw, *r.stream_).ok();
       return ok ? Outputs{y, rstd, dx, dw} : Outputs{};
     }},
    {"Rotary",
     [](KernelRig& r) -> Outputs {
       const Tensor table = r.New({100, 10}), x = r.Put(r.Random(kRows * 30), {kRows, 30});
       const bool ok = RotaryTable({}, 0, Tensor(), table, *r.stream_).ok() &&
                       Rotary(table, false, x, *r.stream_).ok();
       return ok ? Outputs{table, x} : Outputs{};
     }},
    {"SwiGlu",
     [](KernelRig& r) -> Outputs {
       const Tensor gate = r.Put(r.Random(kRows * kColumns), {kRows, kColumns});
       const Tensor up = r.Put(r.Random(kRows * kColumns), {kRows, kColumns});
       const Tensor y = r.New({kRows, kColumns}), dg = r.New({kRows, kColumns});
       const Tensor du = r.New({kRows, kColumns});
       const bool ok = SwiGluForward(gate, up, y, *r.stream_).ok() &&
                       SwiGluBackward(gate, up, y, dg, du, *r.stream_).ok();
       return ok ? Outputs{y, dg, du} : Outputs{};
     }},
    {"DropoutAndCast",
     [](KernelRig& r) -> Outputs {
       const Tensor x = r.Put(r.Random(kRows * kColumns), {kRows, kColumns});
       const Tensor y = r.New({kRows, kColumns}, DType::kBFloat16);
       const bool ok = Dropout(x, {0.2f, 3, 5}, x, *r.stream_).ok() && Cast(x, y, *r.stream_).ok();
       return ok ? Outputs{x, y} : Outputs{};
     }},
    {"AttentionBf16",
     [](KernelRig& r) -> Outputs {
       const AttentionShape s{2, 130, 4, 2, 8, 0.35f};
       const DType type = DType::kBFloat16;
       const Tensor q = r.Put(r.Random(260 * 32), {260, 32}, type), dq = r.New({260, 32}, type);
       const Tensor k = r.Put(r.Random(260 * 16), {260, 16}, type), dk = r.New({260, 16}, type);
       const Tensor v = r.Put(r.Random(260 * 16), {260, 16}, type), dv = r.New({260, 16}, type);
       const Tensor y = r.New({260, 32}, type), lse = r.New({2, 4, 130});
       const Tensor work = r.New({AttentionWorkspaceBytes(s, *r.device_, type)}, DType::kUInt8);
       const bool ok = AttentionForward(s, q, k, v, y, lse, work, *r.stream_).ok() &&
                       AttentionBackward(s, q, k, v, y, lse, y, dq, dk, dv, work, *r.stream_).ok();
       return ok ? Outputs{y, lse, dq, dk, dv} : Outputs{};
     }},
    {"Attention",
     [](KernelRig& r) -> Outputs {
       const AttentionShape s{2, 130, 4, 2, 8, 0.35f};
       const Tensor q = r.Put(r.Random(260 * 32), {260, 32}), dq = r.New({260, 32});
       const Tensor k = r.Put(r.Random(260 * 16), {260, 16}), dk = r.New({260, 16});
       const Tensor v = r.Put(r.Random(260 * 16), {260, 16}), dv = r.New({260, 16});
       const Tensor y = r.New({260, 32}), lse = r.New({2, 4, 130});
       const Tensor work = r.New({AttentionWorkspaceBytes(s, *r.device_)}, DType::kUInt8);
       const bool ok = AttentionForward(s, q, k, v, y, lse, work, *r.stream_).ok() &&
                       AttentionBackward(s, q, k, v, y, lse, y, dq, dk, dv, work, *r.stream_).ok();
       return ok ? Outputs{y, lse, dq, dk, dv} : Outputs{};
     }},
    {"AttentionParts",
     [](KernelRig& r) -> Outputs {
       const AttentionShape s{.batch = 2,
                              .time = 130,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_size = 8,
                              .causal = false,
                              .keys = 67};
       const Tensor q = r.Put(r.Random(260 * 32), {260, 32}), dq = r.New({260, 32});
       const Tensor k = r.Put(r.Random(134 * 16), {134, 16}), dk = r.New({134, 16});
       const Tensor v = r.Put(r.Random(134 * 16), {134, 16}), dv = r.New({134, 16});
       const Tensor y = r.New({260, 32}), lse = r.New({2, 4, 130});
       const Tensor sum = r.Put(r.Random(260 * 32), {260, 32});
       const Tensor sum_lse = r.Put(r.Random(1040), {2, 4, 130});
       const Tensor work = r.New({AttentionWorkspaceBytes(s, *r.device_)}, DType::kUInt8);
       const bool ok =
           AttentionForward(s, q, k, v, y, lse, work, *r.stream_).ok() &&
           AttentionBackward(s, q, k, v, y, lse, y, dq, dk, dv, work, *r.stream_).ok() &&
           MergeAttention(y, lse, 0, sum, sum_lse, *r.stream_).ok() &&
           AddInto(y, dq, *r.stream_).ok() && CopyMatrix(dk, dv, *r.stream_).ok();
       return ok ? Outputs{y, lse, dq, dk, dv, sum, sum_lse} : Outputs{};
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
    {"CrossEntropySlice",
     [](KernelRig& r) -> Outputs {
       CrossEntropyOptions options;
       options.num_classes = 2 * kColumns;
       const VocabularySlice slice{kColumns, kColumns};
       const Tensor logits = r.Put(r.Random(kRows * kColumns), {kRows, kColumns}, DType::kBFloat16);
       const Tensor targets = r.PutIds(r.RandomIds(kRows, -1, 2 * kColumns - 1), {kRows});
       const Tensor max = r.New({1, kRows}), sum = r.New({1, kRows}), logit = r.New({1, kRows});
       const Tensor lse = r.New({kRows}), losses = r.New({kRows});
       const bool ok =
           CrossEntropyStatistics(logits, targets, 2 * kColumns, slice, max.Reshape({kRows}),
                                  sum.Reshape({kRows}), logit.Reshape({kRows}), *r.stream_)
               .ok() &&
           CombineCrossEntropy(max, sum, logit, targets, lse, losses, *r.stream_).ok() &&
           CrossEntropyGradient(logits, targets, options, slice, lse, *r.stream_).ok();
       return ok ? Outputs{max, sum, logit, lse, losses, logits} : Outputs{};
     }},
    {"FlatPasses",
     [](KernelRig& r) -> Outputs {
       const int64_t n = 50001;
       const Tensor p = r.Put(r.Random(n), {n}), g = r.Put(r.Random(n), {n});
       const Tensor m = r.Put(r.Random(n), {n}), v = r.Put(std::vector<float>(n, 1), {n});
       const Tensor norm = r.New({1});
       AdamWOptions options;
       options.learning_rate = 0.01;
       options.low_precision_parameter = r.New({n}, DType::kFloat16);
       const bool ok = Add(p, g, p, *r.stream_).ok() && Scale(g, 0.7f, *r.stream_).ok() &&
                       AdamW(p, g, m, v, options, *r.stream_).ok() &&
                       SquaredNorm(p, norm, *r.stream_).ok();
       return ok ? Outputs{p, g, m, v, norm, options.low_precision_parameter} : Outputs{};
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
