#include "coordinator/generation_table.h"

#include <utility>

namespace tessera {

std::shared_ptr<GenerationSink> GenerationTable::Find(const std::string& id,
                                                      int64_t session_id) const {
  auto it = entries_.find(id);
  if (it == entries_.end() || it->second.session_id != session_id) return nullptr;
  return it->second.sink;
}

GenerationTable::Entry GenerationTable::Remove(const std::string& id) {
  auto node = entries_.extract(id);
  return node.empty() ? Entry() : std::move(node.mapped());
}

std::vector<GenerationTable::Entry> GenerationTable::RemoveIf(
    const std::function<bool(const Entry&)>& condition) {
  std::vector<Entry> removed;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (condition(it->second)) {
      removed.push_back(std::move(it->second));
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
  return removed;
}

}  // namespace tessera
