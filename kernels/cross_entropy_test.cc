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

// Terms err by exp's 1 ulp and the logit's shift (u |logit - max| < 1e-6); probabilities are at
// most 1, losses about 10.
TEST_P(CrossEntropyTest, AgainstFp64) {
  for (const auto& [m, classes, columns] : kSizes) {
    const std::vector<float> logits = Random(m * columns, 2);
    std::vector<int32_t> targets = RandomIds(m, 0, classes - 1);
    if (m > 3) targets[1] = targets[3] = -1;
    CrossEntropyOptions options;
    options.num_classes = classes;
    options.gradient_scale = 0.125f;
    for (const bool overwrite : {false, true}) {
      options.overwrite_logits = overwrite;
      const Tensor device_logits = Put(logits, {m, columns}), losses = New({m});
      ASSERT_TRUE(
          CrossEntropy(device_logits, PutIds(targets, {m}), options, losses, *stream_).ok());
      const std::vector<float> result = Get(losses), gradient = Get(device_logits);
      if (!overwrite) {
        EXPECT_EQ(gradient, logits);
      }
      for (int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < classes; ++j) {
          sum += std::exp(static_cast<double>(logits[i * columns + j]));
        }
        const double loss = targets[i] < 0 ? 0 : std::log(sum) - logits[i * columns + targets[i]];
        ASSERT_NEAR(result[i], loss, 2e-6 * (1 + loss));
        for (int64_t j = 0; j < columns && overwrite; ++j) {
          double expected = 0;
          if (targets[i] >= 0 && j < classes) {
            expected = std::exp(static_cast<double>(logits[i * columns + j])) / sum;
            expected = 0.125 * (expected - (j == targets[i] ? 1 : 0));
          }
          ASSERT_NEAR(gradient[i * columns + j], expected, 1e-6 * 0.125);
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
  options.num_classes = 5;
  EXPECT_EQ(
      CrossEntropy(New({1, 4}), PutIds(std::vector<int32_t>{0}, {1}), options, New({1}), *stream_)
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TESSERA_INSTANTIATE_KERNEL_TEST(CrossEntropyTest);

}  // namespace
}  // namespace tessera
