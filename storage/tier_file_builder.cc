#include "storage/tier_file_builder.h"

#include <limits>
#include <utility>

#include "kernels/status_macros.h"
#include "storage/tier_database.h"

namespace tessera {
namespace {

constexpr uint32_t kLastOrdinal = std::numeric_limits<uint32_t>::max();

}  // namespace

TierFileBuilder::TierFileBuilder(const std::string& path, rocksdb::Env* env,
                                 std::string step_prefix, uint32_t file)
    : path_(path),
      step_prefix_(std::move(step_prefix)),
      file_(file),
      writer_(rocksdb::EnvOptions(), TierValueOptions(env), /*column_family=*/nullptr,
              /*invalidate_page_cache=*/false) {}

absl::StatusOr<std::unique_ptr<TierFileBuilder>> TierFileBuilder::Create(const std::string& path,
                                                                         rocksdb::Env* env,
                                                                         std::string step_prefix,
                                                                         uint32_t file) {
  std::unique_ptr<TierFileBuilder> builder(
      new TierFileBuilder(path, env, std::move(step_prefix), file));
  TESSERA_RETURN_IF_ERROR(FromRocks(builder->writer_.Open(path), path));
  TESSERA_RETURN_IF_ERROR(builder->AddEnd(0));
  return builder;
}

// Ingestion reads the first and the last block of a file: these are small ones.
absl::Status TierFileBuilder::AddEnd(uint32_t ordinal) {
  return FromRocks(writer_.Put(TierValueKey(step_prefix_, {file_, ordinal}, {}), {}), path_);
}

absl::StatusOr<TierPlace> TierFileBuilder::Add(const TierValueHeader& header,
                                               absl::Span<const uint8_t> bytes) {
  const TierPlace place = {file_, next_ordinal_++};
  TESSERA_RETURN_IF_ERROR(FromRocks(
      writer_.Put(TierValueKey(step_prefix_, place, header),
                  rocksdb::Slice(reinterpret_cast<const char*>(bytes.data()), bytes.size())),
      path_));
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return place;
}

absl::Status TierFileBuilder::Finish() {
  TESSERA_RETURN_IF_ERROR(AddEnd(kLastOrdinal));
  return FromRocks(writer_.Finish(), path_);
}

}  // namespace tessera
