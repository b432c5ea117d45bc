// The generations that workers are busy with, and who waits for each.
#ifndef TESSERA_COORDINATOR_GENERATION_TABLE_H_
#define TESSERA_COORDINATOR_GENERATION_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/tessera/v1/generation.pb.h"

namespace tessera {

// The client's end of a generation. Thread-safe; never blocks, and calls nobody back.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void Send(const v1::GenerateResponse& response) = 0;
  // The last call.
  virtual void End(const absl::Status& status) = 0;
};

// A generation lives while its worker's stream does. Not thread-safe: guarded by its owner.
class GenerationTable {
 public:
  struct Entry {
    std::string worker;      // "workers/{worker}"
    int64_t session_id = 0;  // of its stream
    std::shared_ptr<GenerationSink> sink;
  };

  void Add(const std::string& id, Entry entry) { entries_[id] = std::move(entry); }
  // Nothing for one that is not there, or is another stream's.
  std::shared_ptr<GenerationSink> Find(const std::string& id, int64_t session_id) const;
  // The entry that was removed; an empty one if there is none.
  Entry Remove(const std::string& id);
  // Those for which it is true, removed.
  std::vector<Entry> RemoveIf(const std::function<bool(const Entry&)>& condition);

 private:
  std::map<std::string, Entry> entries_;  // by id
};

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_GENERATION_TABLE_H_
