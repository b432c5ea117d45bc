// Rows are copied and added by plain loops, which the compiler vectorises; memory bounds them.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/parallel.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kRowBlock = 128;
// Gradients: threads share out columns, so that each sum runs over rows in ascending order.
constexpr int64_t kColumnBlock = 64;

absl::Status CheckIds(const int32_t* ids, int64_t count, int64_t vocab) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat("embedding: id ", ids[i], " at position ", i,
                                                     " is outside [0, ", vocab, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EmbeddingForward(const Tensor& ids, const Tensor& token_table,
                              const Tensor& position_table, const Tensor& output, int num_threads) {
  const int32_t* id = Data<const int32_t>(ids);
  const int64_t rows = ids.num_elements(), time = ids.shape().dim(1);
  const int64_t channels = token_table.shape().dim(1);
  absl::Status status = CheckIds(id, rows, token_table.shape().dim(0));
  if (!status.ok()) return status;
  const float* tokens = Data<const float>(token_table);
  const float* positions = position_table.is_null() ? nullptr : Data<const float>(position_table);
  float* out = Data<float>(output);
  ParallelForBlocks(num_threads, rows, kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* token = tokens + id[i] * channels;
      float* row = out + i * channels;
      if (positions == nullptr) {
        std::memcpy(row, token, channels * sizeof(float));
        continue;
      }
      const float* position = positions + i % time * channels;
      for (int64_t c = 0; c < channels; ++c) row[c] = token[c] + position[c];
    }
  });
  return absl::OkStatus();
}

absl::Status EmbeddingBackward(const Tensor& ids, const Tensor& d_output,
                               const Tensor& d_token_table, const Tensor& d_position_table,
                               int num_threads) {
  const int32_t* id = Data<const int32_t>(ids);
  const int64_t rows = ids.num_elements(), time = ids.shape().dim(1);
  const int64_t channels = d_token_table.shape().dim(1);
  absl::Status status = CheckIds(id, rows, d_token_table.shape().dim(0));
  if (!status.ok()) return status;
  const float* gradient = Data<const float>(d_output);
  float* tokens = Data<float>(d_token_table);
  float* positions = d_position_table.is_null() ? nullptr : Data<float>(d_position_table);
  ParallelForBlocks(num_threads, channels, kColumnBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < rows; ++i) {
      const float* row = gradient + i * channels;
      float* token = tokens + id[i] * channels;
      for (int64_t c = begin; c < end; ++c) token[c] += row[c];
      if (positions == nullptr) continue;
      float* position = positions + i % time * channels;
      for (int64_t c = begin; c < end; ++c) position[c] += row[c];
    }
  });
  return absl::OkStatus();
}

}  // namespace tessera::cpu
