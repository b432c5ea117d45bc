// Steps whose every byte follows from their names, for tests of the nvme tier.
#ifndef TESSERA_STORAGE_TIER_TEST_VALUES_H_
#define TESSERA_STORAGE_TIER_TEST_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/aligned_buffer.h"
#include "storage/tier_store.h"

namespace tessera {

struct TestValue {
  std::string unit, kind;
  int64_t begin = 0;
  DType dtype = DType::kFloat32;
  int64_t num_elements = 0;
};

// Values of several sizes, of which `large` have about large_bytes.
std::vector<TestValue> TestValues(int large, int64_t large_bytes);

// What a value of this step has to be.
std::vector<uint8_t> TestBytes(const std::string& job, int64_t step, const TestValue& value);

// Writes the step; committed with metadata TestMetadata.
absl::Status WriteTestStep(TierStore& store, const std::string& job, int64_t step,
                           const std::vector<TestValue>& values);
std::string TestMetadata(const std::string& job, int64_t step);

// The step is committed and whole: the metadata, the values, and every byte of them.
absl::Status CheckTestStep(TierStore& store, const std::string& job, int64_t step,
                           const std::vector<TestValue>& values);

// "JOB STEP" of each committed step.
std::vector<std::string> StepNames(const TierStore& store);

// What lies in the folder of a store that is closed but is not part of it: files of values to which
// their job's database does not refer, and all that is in the staging folder.
absl::StatusOr<std::vector<std::string>> StrayFiles(const std::string& path);

// A new folder in the test's.
std::string NewTestFolder();

}  // namespace tessera

#endif  // TESSERA_STORAGE_TIER_TEST_VALUES_H_
