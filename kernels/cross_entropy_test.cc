#include "kernels/cross_entropy.h"

#include "kernels/conformance.h"

namespace tessera {
namespace {

class CrossEntropyTest : public KernelTest {};

struct Sizes {
  int64_t rows, classes, columns;
};
// Odd, padded, one class, more than one block of 512 columns.
constexpr Sizes kSizes[] = {{1, 1, 1}, {37, 257, 257}, {19, 257, 320}, {5, 1500, 1536}};

struct Reference {
  std::vector<double> losses, gradient;
};

Reference Expected(const std::vector<float>& logits, const std::vector<int32_t>& targets,
                   const Sizes& s, double scale) {
  Reference r{std::vector<double>(s.rows), std::vector<double>(s.rows * s.columns)};
  for (int64_t i = 0; i < s.rows; ++i) {
    if (targets[i] < 0) continue;
    double sum = 0;
    for (int64_t j = 0; j < s.classes; ++j) {
      sum += std::exp(static_cast<double>(logits[i * s.columns + j]));
    }
    r.losses[i] = std::log(sum) - logits[i * s.columns + targets[i]];
    for (int64_t j = 0; j < s.classes; ++j) {
      const double p = std::exp(static_cast<double>(logits[i * s.columns + j])) / sum;
      r.gradient[i * s.columns + j] = scale * (p - (j == targets[i] ? 1 : 0));
    }
  }
  return r;
}

std::vector<int32_t> Targets(KernelRig& rig, const Sizes& s) {
  std::vector<int32_t> targets = rig.RandomIds(s.rows, 0, s.classes - 1);
  if (s.rows > 3) targets[1] = targets[3] = -1;
  return targets;
}

// The gradient is that of the losses: central differences of the fp64 reference.
TEST_P(CrossEntropyTest, ReferenceIsItsOwnGradient) {
  const Sizes s{2, 5, 6};
  const std::vector<int32_t> targets = {3, 0};
  std::vector<float> logits = Random(s.rows * s.columns);
  const Reference r = Expected(logits, targets, s, 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    // Powers of two, so that the fp32 logits move exactly; error h^2 = 6e-8.
    const float saved = logits[i], h = 0x1p-12f;
    double difference = 0;
    for (const float sign : {1.0f, -1.0f}) {
      logits[i] = saved + sign * h;
      const double step = (static_cast<double>(logits[i]) - saved);
      const Reference moved = Expected(logits, targets, s, 1);
      difference += (moved.losses[0] + moved.losses[1] - r.losses[0] - r.losses[1]) / step / 2;
    }
    logits[i] = saved;
    EXPECT_NEAR(r.gradient[i], difference, 1e-6);
  }
}

// Terms err by exp's 1 ulp and the logit's shift (u |logit - max| < 1e-6); probabilities are at
// most 1, losses about 10.
TEST_P(CrossEntropyTest, AgainstFp64) {
  for (const DType dtype : kFloatTypes) {
    for (const Sizes& s : kSizes) {
      const int64_t m = s.rows, columns = s.columns;
      const std::vector<float> logits = RandomOf(dtype, m * columns, 2);
      const std::vector<int32_t> targets = Targets(*this, s);
      const Reference expected = Expected(logits, targets, s, 0.125);
      CrossEntropyOptions options;
      options.num_classes = s.classes;
      options.gradient_scale = 0.125f;
      for (const bool overwrite : {false, true}) {
        options.overwrite_logits = overwrite;
        const Tensor device_logits = Put(logits, {m, columns}, dtype), losses = New({m});
        ASSERT_TRUE(
            CrossEntropy(device_logits, PutIds(targets, {m}), options, losses, *stream_).ok());
        const std::vector<float> result = Get(losses), gradient = Get(device_logits);
        if (!overwrite) {
          EXPECT_EQ(gradient, logits);
        }
        for (int64_t i = 0; i < m; ++i) {
          ASSERT_NEAR(result[i], expected.losses[i], 2e-6 * (1 + expected.losses[i]));
        }
        for (int64_t i = 0; i < m * columns && overwrite; ++i) {
          ASSERT_NEAR(gradient[i], expected.gradient[i],
                      1e-6 * 0.125 + StoreError(dtype, expected.gradient[i]))
              << DTypeName(dtype);
        }
      }
    }
  }
}

// Slices of unequal size, the last padded, one empty: together they say what the whole says. The
// log-sum-exp, about 10, is rounded to fp32 before it is subtracted: 10 u more.
TEST_P(CrossEntropyTest, SlicesEqualTheWhole) {
  for (const DType dtype : kFloatTypes) {
    for (const int64_t width : {64, 700, 1100}) {
      const Sizes s{19, 1500, 1500};
      const std::vector<float> logits = RandomOf(dtype, s.rows * s.classes, 2);
      const std::vector<int32_t> targets = Targets(*this, s);
      const Reference expected = Expected(logits, targets, s, 0.125);
      const int64_t slices = (s.classes + width - 1) / width + 1;  // the last is empty
      const Tensor maxima = New({slices, s.rows}), sums = New({slices, s.rows});
      const Tensor target_logits = New({slices, s.rows}), ids = PutIds(targets, {s.rows});
      std::vector<Tensor> parts;
      std::vector<VocabularySlice> ranges;
      for (int64_t r = 0; r < slices; ++r) {
        const int64_t first = std::min(r * width, s.classes);
        ranges.push_back({first, std::min(width, s.classes - first)});
        std::vector<float> part(s.rows * width, 100);  // padding would win
        for (int64_t i = 0; i < s.rows; ++i) {
          for (int64_t j = 0; j < ranges[r].slice_classes; ++j) {
            part[i * width + j] = logits[i * s.classes + first + j];
          }
        }
        parts.push_back(Put(part, {s.rows, width}, dtype));
        ASSERT_TRUE(CrossEntropyStatistics(parts[r], ids, s.classes, ranges[r],
                                           maxima.Slice(r * s.rows, s.rows),
                                           sums.Slice(r * s.rows, s.rows),
                                           target_logits.Slice(r * s.rows, s.rows), *stream_)
                        .ok());
      }
      const Tensor lse = New({s.rows}), losses = New({s.rows});
      ASSERT_TRUE(
          CombineCrossEntropy(maxima, sums, target_logits, ids, lse, losses, *stream_).ok());
      const std::vector<float> result = Get(losses);
      for (int64_t i = 0; i < s.rows; ++i) {
        ASSERT_NEAR(result[i], expected.losses[i], 2e-6 * (1 + expected.losses[i]));
      }
      CrossEntropyOptions options;
      options.num_classes = s.classes;
      options.gradient_scale = 0.125f;
      for (int64_t r = 0; r < slices; ++r) {
        ASSERT_TRUE(CrossEntropyGradient(parts[r], ids, options, ranges[r], lse, *stream_).ok());
        const std::vector<float> gradient = Get(parts[r]);
        for (int64_t i = 0; i < s.rows * width; ++i) {
          const int64_t row = i / width, column = i % width;
          const double wanted =
              column >= ranges[r].slice_classes
                  ? 0
                  : expected.gradient[row * s.classes + ranges[r].first_class + column];
          ASSERT_NEAR(gradient[i], wanted, 2e-6 * 0.125 + StoreError(dtype, wanted))
              << DTypeName(dtype) << " slice " << r << " " << row << " " << column;
        }
      }
    }
  }
}

TEST_P(CrossEntropyTest, SurvivesLargeLogits) {
  CrossEntropyOptions options;
  options.num_classes = 3;
  options.overwrite_logits = true;
  const Tensor logits = Put(std::vector<float>{1e30f, -1e30f, 0}, {1, 3}), losses = New({1});
  ASSERT_TRUE(
      CrossEntropy(logits, PutIds(std::vector<int32_t>{0}, {1}), options, losses, *stream_).ok());
  EXPECT_EQ(Get(losses), std::vector<float>{0});
  EXPECT_EQ(Get(logits), (std::vector<float>{0, 0, 0}));
}

TEST_P(CrossEntropyTest, RefusesTargetsAndSizes) {
  CrossEntropyOptions options;
  options.num_classes = 3;
  for (const int32_t bad : {-2, 3}) {
    EXPECT_EQ(CrossEntropy(New({1, 4}), PutIds(std::vector<int32_t>{bad}, {1}), options, New({1}),
                           *stream_)
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
  const Tensor m = New({1}), target = PutIds(std::vector<int32_t>{3}, {1});
  EXPECT_EQ(CrossEntropyStatistics(New({1, 4}), target, 3, {0, 3}, m, m, m, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CrossEntropyStatistics(New({1, 4}), target, 8, {6, 3}, m, m, m, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CrossEntropyGradient(New({1, 4}), target, options, {0, 5}, m, *stream_).code(),
            absl::StatusCode::kInvalidArgument);
  options.num_classes = 5;
  EXPECT_EQ(
      CrossEntropy(New({1, 4}), PutIds(std::vector<int32_t>{0}, {1}), options, New({1}), *stream_)
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(CrossEntropyTest);

}  // namespace
}  // namespace tessera
