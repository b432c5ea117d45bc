#include "storage/tier_file_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/status_macros.h"
#include "storage/tier_database.h"

namespace tessera {
namespace {

// From this size on, values lie in the file so that they can be written and read without a copy.
constexpr int64_t kLargeBytes = 64 << 10;

int64_t VarintBytes(uint64_t number) {
  int64_t bytes = 1;
  while (number >>= 7) ++bytes;
  return bytes;
}

// RocksDB's data block of one entry (block_builder.cc): three varints, key with sequence number,
// value; then one restart and their number; then what stands behind any block (format.h).
constexpr int64_t kInternalKeyBytes = 8, kRestartBytes = 8, kTrailerBytes = 5;
int64_t EntryBytesBeforeValue(int64_t key_bytes, int64_t value_bytes) {
  const int64_t internal_key_bytes = key_bytes + kInternalKeyBytes;
  return 1 + VarintBytes(internal_key_bytes) + VarintBytes(value_bytes) + internal_key_bytes;
}
int64_t BlockBytes(int64_t key_bytes, int64_t value_bytes) {
  return EntryBytesBeforeValue(key_bytes, value_bytes) + value_bytes + kRestartBytes +
         kTrailerBytes;
}

rocksdb::EnvOptions WriterOptions() {
  rocksdb::EnvOptions options;
  // Larger blocks are handed over without a copy.
  options.writable_file_max_buffer_size = kLargeBytes / 2;
  return options;
}

}  // namespace

TierFileBuilder::TierFileBuilder(const std::string& path, rocksdb::Env* env,
                                 std::string step_prefix, uint32_t file)
    : path_(path),
      step_prefix_(std::move(step_prefix)),
      file_(file),
      writer_(WriterOptions(), TierValueOptions(env), /*column_family=*/nullptr,
              /*invalidate_page_cache=*/false) {}

absl::StatusOr<std::unique_ptr<TierFileBuilder>> TierFileBuilder::Create(const std::string& path,
                                                                         rocksdb::Env* env,
                                                                         std::string step_prefix,
                                                                         uint32_t file) {
  std::unique_ptr<TierFileBuilder> builder(
      new TierFileBuilder(path, env, std::move(step_prefix), file));
  TESSERA_RETURN_IF_ERROR(FromRocks(builder->writer_.Open(path), path));
  TESSERA_RETURN_IF_ERROR(builder->Put({file, builder->next_ordinal_++}, {}, {}));
  return builder;
}

absl::Status TierFileBuilder::Put(TierPlace place, const TierValueHeader& header,
                                  absl::Span<const uint8_t> bytes) {
  const std::string key = TierValueKey(step_prefix_, place, header);
  open_block_bytes_ =
      BlockBytes(static_cast<int64_t>(key.size()), static_cast<int64_t>(bytes.size()));
  return FromRocks(
      writer_.Put(key, rocksdb::Slice(reinterpret_cast<const char*>(bytes.data()), bytes.size())),
      path_);
}

absl::Status TierFileBuilder::PutLarge(TierPlace place, const TierValueHeader& header,
                                       AppendTwin* twin, absl::Span<const uint8_t> bytes,
                                       int64_t* offset) {
  // Room before it, so that the value begins with a block of the disk.
  const int64_t room_begin = static_cast<int64_t>(writer_.FileSize()) + open_block_bytes_;
  const TierPlace room_place = {file_, place.ordinal - 1};
  const auto key_bytes = static_cast<int64_t>(TierValueKey(step_prefix_, room_place, {}).size());
  const int64_t before_value =
      EntryBytesBeforeValue(static_cast<int64_t>(TierValueKey(step_prefix_, place, header).size()),
                            static_cast<int64_t>(bytes.size()));
  std::vector<uint8_t> room(kDirectIoAlignment + 1);
  int64_t room_bytes = 0;
  const auto begin = [&] { return room_begin + BlockBytes(key_bytes, room_bytes) + before_value; };
  while (begin() != AlignUp(begin()) && room_bytes <= kDirectIoAlignment) ++room_bytes;
  TESSERA_RETURN_IF_ERROR(
      Put(room_place, {}, absl::MakeSpan(room).first(std::min(room_bytes, kDirectIoAlignment))));
  TESSERA_RETURN_IF_ERROR(Put(place, header, bytes));
  *offset = static_cast<int64_t>(writer_.FileSize()) + before_value;
  // RocksDB writes a block when the next one begins.
  const ScopedAppendTwin scope(twin);
  return Put({file_, next_ordinal_++}, {}, {});
}

absl::StatusOr<TierFileBuilder::Place> TierFileBuilder::Add(
    const TierValueHeader& header, absl::Span<const uint8_t> bytes,
    std::function<void(absl::Status)> done) {
  Place result;
  AppendTwin twin;
  absl::Status status;
  const auto size = static_cast<int64_t>(bytes.size());
  if (size >= kLargeBytes) {
    result.place = {file_, next_ordinal_ + 1};
    next_ordinal_ += 2;
    if (IsAligned(bytes.data())) {
      twin.bytes = bytes;
      twin.tail_bytes = kRestartBytes;
      twin.done = [this, done](const rocksdb::IOStatus& written) {
        done(FromRocks(written, path_));
      };
    }
    status = PutLarge(result.place, header, &twin, bytes, &result.offset);
    if (twin.bytes.empty() || twin.done) done(status);
  } else {
    result.place = {file_, next_ordinal_++};
    status = Put(result.place, header, bytes);
    result.offset = static_cast<int64_t>(writer_.FileSize()) + open_block_bytes_ - kTrailerBytes -
                    kRestartBytes - size;
    done(status);
  }
  TESSERA_RETURN_IF_ERROR(status);
  size_bytes_ += size;
  return result;
}

absl::Status TierFileBuilder::Finish() {
  // Ingestion reads the first and the last block of a file: both are small ones.
  TESSERA_RETURN_IF_ERROR(Put({file_, next_ordinal_++}, {}, {}));
  return FromRocks(writer_.Finish(), path_);
}

}  // namespace tessera
