// Writes weights into a folder as huggingface_hub does: model.safetensors, or shards and an index
// where they are larger than one file may be.
#ifndef TESSERA_STORAGE_SHARDED_SAFETENSORS_WRITER_H_
#define TESSERA_STORAGE_SHARDED_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/safetensors_writer.h"

namespace tessera {

inline constexpr int64_t kDefaultMaxShardBytes = 5'000'000'000;

struct SafetensorsShard {
  std::string file_name;  // "model-00001-of-00004.safetensors"; "model.safetensors" if it is alone
  SafetensorsLayout layout;
};

struct SafetensorsShardPlan {
  std::vector<SafetensorsShard> shards;
  int64_t total_size_bytes = 0;  // of the tensors
  std::string index_json;        // empty for one shard
};

// Pure: huggingface_hub's greedy split in the order given. A shard is closed when the next tensor
// would carry its data over max_shard_bytes; a tensor larger than that has a shard to itself.
// INVALID_ARGUMENT: as LayOutSafetensors, max_shard_bytes below 1, more than 99999 shards.
absl::StatusOr<SafetensorsShardPlan> PlanSafetensorsShards(
    const std::vector<SafetensorsSpec>& specs, const std::map<std::string, std::string>& metadata,
    int64_t max_shard_bytes = kDefaultMaxShardBytes);

// Thread-safe. Errors name the file and the tensor.
class ShardedSafetensorsWriter {
 public:
  // Creates all temporary files. ALREADY_EXISTS: the folder has model.safetensors or an index,
  // which readers would take together with the new files.
  static absl::StatusOr<ShardedSafetensorsWriter> Create(const std::string& folder,
                                                         SafetensorsShardPlan plan);

  // As SafetensorsWriter::Write.
  absl::Status Write(absl::string_view name, int64_t offset_bytes, absl::Span<const uint8_t> bytes);
  // Once, when all bytes are written: the files, then the index, by which readers find them.
  absl::Status Commit();

 private:
  ShardedSafetensorsWriter() = default;

  std::string folder_;
  std::string index_json_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  absl::flat_hash_map<std::string, SafetensorsWriter*> writer_of_;  // by tensor
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_SHARDED_SAFETENSORS_WRITER_H_
