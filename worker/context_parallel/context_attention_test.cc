// Every kind, at every size, against one rank's attention over whole sequences; what it sends and
// the memory it takes against the predictions.
#include "worker/context_parallel/context_attention.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/conformance.h"
#include "plan/sequence_split.h"
#include "worker/context_parallel/conformance_ranks.h"
#include "worker/context_parallel/context_traffic.h"
#include "worker/context_parallel/zigzag.h"

namespace tessera {
namespace {

constexpr ContextParallelKind kKinds[] = {
    ContextParallelKind::kRing, ContextParallelKind::kAllGather, ContextParallelKind::kUlysses};

struct Case {
  ContextParallelKind kind;
  int cp_size;
  int64_t heads, kv_heads, batch;
  DType dtype;
};
void PrintTo(const Case& c, std::ostream* os) { *os << ContextParallelKindName(c.kind); }

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return absl::StrCat(ContextParallelKindName(c.kind), "_cp", c.cp_size, "_heads", c.heads, "_",
                      c.kv_heads, "_batch", c.batch, "_", DTypeName(c.dtype));
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const ContextParallelKind kind : kKinds) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const int64_t batch : {1, 2}) {
        for (const int cp_size : {1, 2, 4}) {
          for (const int64_t kv_heads : {4, 2, 1}) {
            cases.push_back({kind, cp_size, 4, kv_heads, batch, dtype});
          }
        }
        cases.push_back({kind, 3, 6, 3, batch, dtype});
      }
    }
  }
  return cases;
}

// Halves of 35 rows: a rank's 70 are more than a block of the CPU's kernel.
constexpr int64_t kHalfRows = 35, kHeadSize = 6;

AttentionShape Whole(const Case& c) {
  AttentionShape shape;
  shape.batch = c.batch;
  shape.time = kZigzagHalves * c.cp_size * kHalfRows;
  shape.heads = c.heads;
  shape.kv_heads = c.kv_heads;
  shape.head_size = kHeadSize;
  shape.scale = 0.4f;
  return shape;
}

AttentionShape Local(const Case& c) {
  AttentionShape shape = Whole(c);
  shape.time /= c.cp_size;
  return shape;
}

struct Packed {
  Tensor q, k, v;
};
Packed Unpack(const AttentionShape& shape, const Tensor& packed) {
  const int64_t q = shape.heads * kHeadSize, k = shape.kv_heads * kHeadSize;
  return {packed.Columns(0, q), packed.Columns(q, k), packed.Columns(q + k, k)};
}
int64_t PackedColumns(const AttentionShape& shape) {
  return (shape.heads + 2 * shape.kv_heads) * kHeadSize;
}

// Row of the whole batch of each of a rank's rows.
std::vector<int64_t> RowsOf(const AttentionShape& whole, int cp_size, int cp_rank) {
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < whole.batch; ++b) {
    for (const int32_t position :
         plan::PositionsOf(cp_size, cp_rank, static_cast<int>(whole.time))) {
      rows.push_back(b * whole.time + position);
    }
  }
  return rows;
}

// The rank's rows of a whole batch's matrix.
Tensor PutRows(RankTensors& tensors, const std::vector<float>& whole,
               const std::vector<int64_t>& rows, int64_t columns, DType dtype) {
  std::vector<float> local;
  for (const int64_t row : rows) {
    local.insert(local.end(), whole.begin() + row * columns, whole.begin() + (row + 1) * columns);
  }
  const Tensor tensor = tensors.New(dtype, {static_cast<int64_t>(rows.size()), columns});
  tensors.Set(local.data(), tensor);
  return tensor;
}

class ContextAttentionTest : public testing::TestWithParam<Case>, public KernelRig {
 protected:
  ContextAttentionTest() : KernelRig(CpuBackend(1)) {}

  // Results of all ranks in the order of whole sequences.
  struct Results {
    std::vector<float> output, d_qkv;
  };

  // Twice, to see that nothing is left over from one pass in the next.
  Results RunRanks(const std::vector<float>& qkv, const std::vector<float>& dy) {
    const Case& c = GetParam();
    const AttentionShape whole = Whole(c), local = Local(c);
    const int64_t columns = PackedColumns(whole), width = whole.heads * kHeadSize;
    Results all;
    all.output.resize(dy.size());
    all.d_qkv.resize(qkv.size());
    MakeInProcessWorld()->Run(c.cp_size, [&](TestRank& rank) {
      const std::unique_ptr<Communicator> group = rank.Join(rank.Spec("cp"));
      ASSERT_NE(group, nullptr);
      RankTensors tensors(rank);
      const ArenaUsage before = rank.device->arena().usage();
      auto attention =
          CreateContextAttention(c.kind, local, c.dtype, true, group.get(), *rank.device);
      ASSERT_TRUE(attention.ok()) << attention.status();
      ExpectMemory(before, rank.device->arena().usage(), *rank.device);
      const std::vector<int64_t> rows = RowsOf(whole, c.cp_size, rank.index);
      const Tensor packed = PutRows(tensors, qkv, rows, columns, c.dtype);
      const Tensor d_output = PutRows(tensors, dy, rows, width, c.dtype);
      const auto [q, k, v] = Unpack(local, packed);
      std::vector<float> output, d_qkv;
      for (int pass = 0; pass < 2; ++pass) {
        const Tensor out = tensors.New(c.dtype, d_output.shape());
        const Tensor d_packed = tensors.New(c.dtype, packed.shape());
        const Tensor lse = tensors.New(DType::kFloat32, {local.batch, local.heads, local.time});
        const auto [d_q, d_k, d_v] = Unpack(local, d_packed);
        const CommunicatorStats start = group->stats();
        absl::Status status = (*attention)->Forward(q, k, v, out, lse, *rank.stream);
        ASSERT_TRUE(status.ok()) << status;
        const CommunicatorStats middle = group->stats();
        status = (*attention)->Backward(q, k, v, out, lse, d_output, d_q, d_k, d_v, *rank.stream);
        ASSERT_TRUE(status.ok()) << status;
        ExpectTraffic(Minus(middle, start),
                      PredictContextForward(c.kind, local, c.dtype, c.cp_size));
        ExpectTraffic(Minus(group->stats(), middle),
                      PredictContextBackward(c.kind, local, c.dtype, c.cp_size));
        const std::vector<float> first_output = output, first_d_qkv = d_qkv;
        output = tensors.Get(out);
        d_qkv = tensors.Get(d_packed);
        if (pass == 0) continue;
        EXPECT_EQ(output, first_output);
        EXPECT_EQ(d_qkv, first_d_qkv);
      }
      for (size_t i = 0; i < rows.size(); ++i) {
        std::copy_n(output.begin() + i * width, width, all.output.begin() + rows[i] * width);
        std::copy_n(d_qkv.begin() + i * columns, columns, all.d_qkv.begin() + rows[i] * columns);
      }
    });
    return all;
  }

  void ExpectMemory(const ArenaUsage& before, const ArenaUsage& after, Device& device) {
    const Case& c = GetParam();
    const auto taken = [&](MemoryCategory category) {
      const int i = static_cast<int>(category);
      return after.category[i].current_bytes - before.category[i].current_bytes;
    };
    EXPECT_EQ(taken(MemoryCategory::kCommunication),
              PredictContextBufferBytes(c.kind, Local(c), c.dtype, true, c.cp_size));
    const int64_t workspace = AttentionWorkspaceBytes(
        ContextWorkspaceShape(c.kind, Local(c), c.cp_size), device, c.dtype);
    EXPECT_EQ(taken(MemoryCategory::kWorkspace) / Arena::kAlignmentBytes,
              (workspace + Arena::kAlignmentBytes - 1) / Arena::kAlignmentBytes);
  }

  Tensor Workspace(const AttentionShape& shape) {
    return New({AttentionWorkspaceBytes(shape, *device_)}, DType::kUInt8);
  }
};

// The reference is the fp32 kernel, of which attention_test.cc shows: outputs err by less than
// 2e-5, gradients by less than 1e-4 of 1 + |gradient|. Both sides may. A merge adds a few roundoffs
// of |output| < 5: cp - 1 of them less than 1e-5; adding gradients of cp ranks the same. 16-bit
// results are rounded once besides; backward's reference takes d_output . output from the ranks'
// own rounded output, so that its rounding is no error of theirs. Measured: below 2e-6 and 4e-6.
constexpr double kForward = 2 * 2e-5 + 1e-5, kBackward = 2 * 1e-4 + 1e-5;

TEST_P(ContextAttentionTest, AgainstOneRank) {
  const Case& c = GetParam();
  const AttentionShape whole = Whole(c);
  const int64_t rows = whole.batch * whole.time, width = whole.heads * kHeadSize;
  const int64_t columns = PackedColumns(whole);
  const std::vector<float> qkv = RandomOf(c.dtype, rows * columns);
  const std::vector<float> dy = RandomOf(c.dtype, rows * width);
  const Results results = RunRanks(qkv, dy);
  if (HasFailure()) return;

  const auto [q, k, v] = Unpack(whole, Put(qkv, {rows, columns}));
  const Tensor output = New({rows, width}), lse = New({whole.batch, whole.heads, whole.time});
  const Tensor d_qkv = New({rows, columns}), work = Workspace(whole);
  const auto [d_q, d_k, d_v] = Unpack(whole, d_qkv);
  ASSERT_TRUE(AttentionForward(whole, q, k, v, output, lse, work, *stream_).ok());
  ASSERT_TRUE(AttentionBackward(whole, q, k, v, Put(results.output, {rows, width}), lse,
                                Put(dy, {rows, width}), d_q, d_k, d_v, work, *stream_)
                  .ok());
  const std::vector<float> expected = Get(output), gradient = Get(d_qkv);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(results.output[i], expected[i], kForward + StoreError(c.dtype, expected[i]))
        << "output, token " << i / width << " column " << i % width;
  }
  for (size_t i = 0; i < gradient.size(); ++i) {
    ASSERT_NEAR(results.d_qkv[i], gradient[i],
                kBackward * (1 + std::abs(gradient[i])) + StoreError(c.dtype, gradient[i]))
        << "d_q | d_k | d_v, token " << i / columns << " column " << i % columns;
  }
  if (c.cp_size == 1 && c.dtype == DType::kFloat32) {
    EXPECT_EQ(results.output, expected);
    EXPECT_EQ(results.d_qkv, gradient);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ContextAttentionTest, testing::ValuesIn(AllCases()), CaseName);

TEST(ContextAttention, RefusesWhatItCannotDivide) {
  MakeInProcessWorld()->Run(4, [](TestRank& rank) {
    const std::unique_ptr<Communicator> group = rank.Join(rank.Spec("cp"));
    ASSERT_NE(group, nullptr);
    const auto create = [&](ContextParallelKind kind, int64_t time, int64_t heads, int64_t kv_heads,
                            bool backward) {
      AttentionShape local;
      local.batch = 1;
      local.time = time;
      local.heads = heads;
      local.kv_heads = kv_heads;
      local.head_size = 2;
      return CreateContextAttention(kind, local, DType::kFloat32, backward, group.get(),
                                    *rank.device);
    };
    for (const ContextParallelKind kind : kKinds) {
      const absl::Status odd = create(kind, 3, 4, 4, true).status();
      EXPECT_EQ(odd.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(std::string(odd.message()).find("12 tokens"), std::string::npos) << odd;
    }
    for (const auto& [heads, kv_heads] : {std::pair{6, 6}, {12, 6}}) {
      const absl::Status status =
          create(ContextParallelKind::kUlysses, 2, heads, kv_heads, true).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      for (const int number : {heads, kv_heads, 4}) {
        EXPECT_NE(std::string(status.message()).find(std::to_string(number)), std::string::npos)
            << status;
      }
      EXPECT_TRUE(create(ContextParallelKind::kRing, 2, heads, kv_heads, true).ok());
    }
    auto forward_only = create(ContextParallelKind::kRing, 2, 4, 4, false);
    ASSERT_TRUE(forward_only.ok());
    RankTensors tensors(rank);
    const Tensor rows = tensors.New(DType::kFloat32, {2, 8});
    const Tensor lse = tensors.New(DType::kFloat32, {1, 4, 2});
    EXPECT_EQ((*forward_only)
                  ->Backward(rows, rows, rows, rows, lse, rows, rows, rows, rows, *rank.stream)
                  .code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ((*forward_only)->Forward(rows, rows, lse, rows, lse, *rank.stream).code(),
              absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace tessera
