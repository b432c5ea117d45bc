// Weights in a folder as huggingface_hub lays them out: model.safetensors, or
// model.safetensors.index.json and the shards that it names.
#ifndef TESSERA_STORAGE_SHARDED_SAFETENSORS_H_
#define TESSERA_STORAGE_SHARDED_SAFETENSORS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/safetensors.h"

namespace tessera {

inline constexpr char kSafetensorsFileName[] = "model.safetensors";
inline constexpr char kSafetensorsIndexName[] = "model.safetensors.index.json";

// {"metadata": {"total_size": bytes}, "weight_map": {name: file}}, by name. total_size may be
// absent and is not held against the shards: transformers does not read it, and older writers
// counted tied tensors twice.
// INVALID_ARGUMENT: bad JSON, a duplicate key, no weight_map, a weight_map that is empty or maps to
// something else than the name of a .safetensors file in the same folder.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(absl::string_view text);

// The tensors of one or more files. Move-only; reading is thread-safe.
class ShardedSafetensors {
 public:
  struct Entry {
    const SafetensorsTensor* tensor;
    const SafetensorsFile* file;
  };

  // One file.
  static absl::StatusOr<ShardedSafetensors> OpenFile(const std::string& path);
  // A folder with model.safetensors or an index. Errors name the file and the tensor.
  // NOT_FOUND: neither, or a shard is missing. INVALID_ARGUMENT: both; an index or file that is
  // malformed; a tensor that is not in the shard that the index names, or in one that it does not
  // name, or not in the index.
  static absl::StatusOr<ShardedSafetensors> OpenFolder(const std::string& folder);

  // By name. Entries live as long as this object.
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  // REQUIRES: an entry of this object.
  absl::Span<const uint8_t> bytes(const Entry& entry) const {
    return entry.file->bytes(*entry.tensor);
  }

 private:
  ShardedSafetensors() = default;
  void Add(SafetensorsFile file);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_SHARDED_SAFETENSORS_H_
