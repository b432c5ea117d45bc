#include "storage/tier_test_values.h"

#include <rocksdb/db.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/tier_database.h"

namespace tessera {

std::vector<TestValue> TestValues(int large, int64_t large_bytes) {
  std::vector<TestValue> values = {
      {"embedding", "parameters", 0, DType::kBFloat16, 1000},
      {"head", "optimizer", 7, DType::kFloat32, 3},
      {"head", "optimizer", 10, DType::kUInt8, 0},
  };
  for (int i = 0; i < large; ++i) {
    // Not all of one size, and not of whole blocks of the disk.
    values.push_back({absl::StrCat("layer.", i / 2), i % 2 == 0 ? "optimizer" : "parameters",
                      i * large_bytes, DType::kFloat32, large_bytes / 4 - 100 * i});
  }
  return values;
}

std::vector<uint8_t> TestBytes(const std::string& job, int64_t step, const TestValue& value) {
  uint64_t state = 14695981039346656037u;
  for (const char c :
       absl::StrCat(job, "/", step, "/", value.unit, "/", value.kind, "/", value.begin)) {
    state = (state ^ static_cast<uint8_t>(c)) * 1099511628211u;
  }
  std::vector<uint8_t> bytes(value.num_elements * DTypeSizeBytes(value.dtype));
  for (size_t i = 0; i < bytes.size(); i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = state ^ state >> 29;
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, bytes.size() - i));
  }
  return bytes;
}

std::string TestMetadata(const std::string& job, int64_t step) {
  return absl::StrCat("metadata of ", job, " at ", step);
}

absl::Status WriteTestStep(TierStore& store, const std::string& job, int64_t step,
                           const std::vector<TestValue>& values) {
  // Every other value in memory that is not aligned, which goes another way.
  std::vector<AlignedBuffer> memory;
  std::vector<absl::Span<uint8_t>> bytes;
  int64_t total = 0;
  for (const TestValue& value : values) {
    const std::vector<uint8_t> content = TestBytes(job, step, value);
    memory.emplace_back(static_cast<int64_t>(content.size()) + 1);
    bytes.emplace_back(memory.back().data() + memory.size() % 2, content.size());
    std::copy(content.begin(), content.end(), bytes.back().begin());
    total += static_cast<int64_t>(content.size());
  }
  TESSERA_ASSIGN_OR_RETURN(auto writer, store.BeginStep(job, step, total));
  for (size_t i = 0; i < values.size(); ++i) {
    const TestValue& value = values[i];
    TESSERA_RETURN_IF_ERROR(writer->StartWrite(value.unit, value.kind, value.begin, value.dtype,
                                               {value.num_elements}, bytes[i], nullptr));
  }
  return writer->Commit(TestMetadata(job, step));
}

absl::Status CheckTestStep(TierStore& store, const std::string& job, int64_t step,
                           const std::vector<TestValue>& values) {
  const auto steps = store.steps();
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const TierStep& s) {
    return s.job == job && s.step == step;
  });
  if (found == steps.end()) return absl::NotFoundError(absl::StrCat(job, " ", step));
  if (found->metadata != TestMetadata(job, step)) return absl::DataLossError("metadata");
  TESSERA_ASSIGN_OR_RETURN(const auto headers, store.Values(job, step));
  if (headers.size() != values.size()) return absl::DataLossError("number of values");
  bool is_aligned = true;
  for (const TestValue& value : values) {
    const std::vector<uint8_t> expected = TestBytes(job, step, value);
    const AlignedBuffer memory(static_cast<int64_t>(expected.size()) + 1);
    is_aligned = !is_aligned;
    const absl::Span<uint8_t> bytes(memory.data() + (is_aligned ? 0 : 1), expected.size());
    TESSERA_RETURN_IF_ERROR(store.Read({job, step, value.unit, value.kind, value.begin},
                                       value.dtype, value.num_elements, bytes));
    if (!std::equal(bytes.begin(), bytes.end(), expected.begin())) {
      return absl::InternalError(absl::StrCat("wrong bytes read as right: ", job, " ", step, " ",
                                              value.unit, " ", value.kind));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> StepNames(const TierStore& store) {
  std::vector<std::string> names;
  for (const TierStep& step : store.steps())
    names.push_back(absl::StrCat(step.job, " ", step.step));
  return names;
}

namespace {

absl::Status AddStrayFiles(const std::string& path, std::set<std::string>& stray) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (absl::EndsWith(entry.path().string(), ".sst")) files.insert(entry.path().filename());
  }
  // Read-only: opened as a store, the database would put things in order.
  const rocksdb::Options options = TierValueOptions(rocksdb::Env::Default());
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* opened = nullptr;
  TESSERA_RETURN_IF_ERROR(
      FromRocks(rocksdb::DB::OpenForReadOnly(options, path, {{"default", {}}, {"values", options}},
                                             &families, &opened),
                path));
  const std::unique_ptr<rocksdb::DB> db(opened);
  std::vector<rocksdb::LiveFileMetaData> live;
  db->GetLiveFilesMetaData(&live);
  for (const rocksdb::LiveFileMetaData& file : live) files.erase(file.relative_filename);
  for (rocksdb::ColumnFamilyHandle* family : families) {
    db->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  stray.merge(files);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> StrayFiles(const std::string& path) {
  std::set<std::string> stray;
  for (const auto& job : std::filesystem::directory_iterator(path + "/jobs")) {
    TESSERA_RETURN_IF_ERROR(AddStrayFiles(job.path(), stray));
  }
  for (const auto& entry : std::filesystem::directory_iterator(path + "/staging")) {
    stray.insert(entry.path());
  }
  return std::vector<std::string>(stray.begin(), stray.end());
}

std::string NewTestFolder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  std::string path = absl::StrCat(folder != nullptr ? folder : "/tmp", "/tierXXXXXX");
  return std::string(mkdtemp(path.data())) + "/store";
}

}  // namespace tessera
