// An ordered, durable map from keys to values.
#ifndef TESSERA_STORAGE_KEY_VALUE_STORE_H_
#define TESSERA_STORAGE_KEY_VALUE_STORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Changes that are applied together or not at all.
class WriteBatch {
 public:
  struct Change {
    std::string key;
    std::optional<std::string> value;  // absent: delete
  };
  void Put(absl::string_view key, absl::string_view value) {
    changes_.push_back({std::string(key), std::string(value)});
  }
  void Delete(absl::string_view key) { changes_.push_back({std::string(key), std::nullopt}); }
  const std::vector<Change>& changes() const { return changes_; }

 private:
  std::vector<Change> changes_;
};

enum class Durability { kSynced, kBuffered };

// Thread-safe. Errors: UNAVAILABLE for IO, RESOURCE_EXHAUSTED for a full disk, DATA_LOSS for a
// corrupt file; each names the path.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // kSynced: on disk when it returns. kBuffered: survives the process, not the machine; a later
  // kSynced write makes it durable too. Writes become visible in the order of their calls.
  virtual absl::Status Write(const WriteBatch& batch, Durability durability) = 0;
  // NOT_FOUND for an absent key.
  virtual absl::StatusOr<std::string> Get(absl::string_view key) const = 0;
  // Calls visit for every key that starts with prefix, in order, until it returns false. A
  // snapshot.
  virtual absl::Status Scan(
      absl::string_view prefix,
      const std::function<bool(absl::string_view key, absl::string_view value)>& visit) const = 0;
};

// RocksDB in `path`, made if absent. FAILED_PRECONDITION if another process holds it.
absl::StatusOr<std::unique_ptr<KeyValueStore>> OpenRocksKeyValueStore(const std::string& path);

// In memory, for tests.
std::unique_ptr<KeyValueStore> NewMemoryKeyValueStore();

}  // namespace tessera

#endif  // TESSERA_STORAGE_KEY_VALUE_STORE_H_
