#include <map>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/key_value_store.h"

namespace tessera {
namespace {

class MemoryKeyValueStore : public KeyValueStore {
 public:
  absl::Status Write(const WriteBatch& batch, Durability) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const WriteBatch::Change& change : batch.changes()) {
      if (change.value.has_value()) {
        map_[change.key] = *change.value;
      } else {
        map_.erase(change.key);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(absl::string_view key) const override {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = map_.find(std::string(key));
    if (it == map_.end()) return absl::NotFoundError(absl::StrCat("no key ", key));
    return it->second;
  }

  absl::Status Scan(
      absl::string_view prefix,
      const std::function<bool(absl::string_view, absl::string_view)>& visit) const override {
    std::map<std::string, std::string> snapshot;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      snapshot = map_;
    }
    for (auto it = snapshot.lower_bound(std::string(prefix)); it != snapshot.end(); ++it) {
      if (!absl::StartsWith(it->first, prefix) || !visit(it->first, it->second)) break;
    }
    return absl::OkStatus();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> map_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<KeyValueStore> NewMemoryKeyValueStore() {
  return std::make_unique<MemoryKeyValueStore>();
}

}  // namespace tessera
