// Tensors of a rank, for the conformance suite.
#ifndef TESSERA_WORKER_COMM_CONFORMANCE_TENSORS_H_
#define TESSERA_WORKER_COMM_CONFORMANCE_TENSORS_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "worker/comm/conformance.h"
#include "worker/comm/reference.h"

namespace tessera {

// A tensor with its memory.
struct OwnedTensor {
  DeviceBuffer buffer;
  Tensor tensor;
};

inline OwnedTensor Make(TestRank& rank, DType dtype, int64_t count) {
  OwnedTensor owned{AllocateElements(rank, count, dtype), {}};
  owned.tensor = owned.buffer.View(dtype, {count});
  return owned;
}

inline OwnedTensor Make(TestRank& rank, DType dtype, const Bytes& data) {
  OwnedTensor owned = Make(rank, dtype, static_cast<int64_t>(data.size()) / DTypeSizeBytes(dtype));
  EXPECT_TRUE(rank.device->CopyIn(data.data(), data.size(), owned.tensor, *rank.stream).ok());
  return owned;
}

inline Bytes Read(TestRank& rank, const Tensor& tensor) {
  Bytes data(tensor.size_bytes());
  EXPECT_TRUE(rank.device->CopyOut(tensor, data.data(), data.size(), *rank.stream).ok());
  return data;
}

#define EXPECT_OK(expression)                  \
  do {                                         \
    const absl::Status status_ = (expression); \
    EXPECT_TRUE(status_.ok()) << status_;      \
  } while (false)

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_CONFORMANCE_TENSORS_H_
