// Names and headers of values in the nvme tier, and the bytes they are kept as (docs/formats.md).
#ifndef TESSERA_STORAGE_TIER_VALUE_H_
#define TESSERA_STORAGE_TIER_VALUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/dtype.h"

namespace tessera {

// One value of one step of one job.
struct TierKey {
  std::string job;    // uid; a file's name
  int64_t step = 0;   // >= 0
  std::string unit;   // "embedding", "layer.3", "head"
  std::string kind;   // "optimizer", "parameters"
  int64_t begin = 0;  // first element in the unit's flat buffer, >= 0

  std::string ToString() const;
};

// INVALID_ARGUMENT: what the comments above rule out, or a name of more than 255 bytes.
absl::Status CheckTierStep(absl::string_view job, int64_t step);
absl::Status CheckTierKey(const TierKey& key);

// What is known of a value beside its bytes.
struct TierValueHeader {
  static constexpr int kMaxDims = 8;

  std::string unit, kind;
  int64_t begin = 0;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint32_t crc = 0;  // crc32c of the bytes

  int64_t num_elements() const;
  int64_t size_bytes() const { return num_elements() * DTypeSizeBytes(dtype); }
};

// INVALID_ARGUMENT: more dims than kMaxDims, a negative one, or a size that is not size_bytes, or
// is above 1 GiB.
absl::Status CheckTierShape(const TierValueHeader& header, int64_t size_bytes);

// The keys of a step begin with this, and no other key does. Those of later steps of the same job
// are greater.
std::string TierStepPrefix(absl::string_view job, int64_t step);
// The least string beyond all keys of the step.
std::string TierStepEnd(absl::string_view job, int64_t step);
// Of a key with such a prefix. DATA_LOSS: it has none.
struct TierStepName {
  std::string job;
  int64_t step = 0;
  friend auto operator<=>(const TierStepName&, const TierStepName&) = default;
};
absl::StatusOr<TierStepName> ParseTierStepPrefix(absl::string_view key);

// Number of the file, from the keys in it. DATA_LOSS: it is none of a value.
absl::StatusOr<uint32_t> ParseTierFile(absl::string_view key);

// Where a value lies: the ordinal-th of the step's file. Keys ascend in this order.
struct TierPlace {
  uint32_t file = 0, ordinal = 0;
};
// prefix of the step, place, header: no two keys of a store are equal, and each tells what it
// names.
std::string TierValueKey(absl::string_view step_prefix, TierPlace place,
                         const TierValueHeader& header);

// A committed step as its commit record has it.
struct TierStepRecord {
  struct Value {
    TierPlace place;
    int64_t offset = 0;  // of the bytes, in the file
    TierValueHeader header;
  };
  std::string metadata;
  std::vector<Value> values;

  int64_t size_bytes() const;
};
std::string EncodeTierStepRecord(const TierStepRecord& record);
// DATA_LOSS: what is wrong with it.
absl::StatusOr<TierStepRecord> DecodeTierStepRecord(absl::string_view bytes);

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_VALUE_H_
