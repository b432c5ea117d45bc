// Scratch space on the nvme tier's disk for values that no restart needs, such as gradients.
#ifndef TESSERA_STORAGE_SWAP_FILE_H_
#define TESSERA_STORAGE_SWAP_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "storage/io_threads.h"

namespace tessera {

struct SwapFileOptions {
  std::string path;                      // folder; made if absent
  std::vector<int64_t> slot_size_bytes;  // of each slot
  int depth = 8;                         // operations at a time; as many again may wait
  bool direct_io = true;                 // Open fails where the file system cannot
};

// Called once, on a thread of the file, when the caller's memory is its own again. Must neither
// call nor destroy the file.
using SwapDone = std::function<void(absl::Status)>;

// A file without a name, which is gone when this process is, with slots that are overwritten in
// place. Thread-safe; operations on one slot must not overlap: wait for `done` before the next.
// Memory that is not aligned (kDirectIoAlignment) is copied on its way.
//
// Errors name folder and slot. RESOURCE_EXHAUSTED: the disk is full (also at Open, which reserves
// all slots). UNAVAILABLE: another error of the system. DATA_LOSS: the bytes are not those that
// were written. NOT_FOUND: the slot has not been written.
class SwapFile {
 public:
  // FAILED_PRECONDITION: the file system does no direct IO. INVALID_ARGUMENT: a negative size.
  static absl::StatusOr<std::unique_ptr<SwapFile>> Open(const SwapFileOptions& options);
  // Waits for operations.
  ~SwapFile();

  // Starts writing `bytes`, at most the slot's size; they stay valid and unchanged until done.
  // Blocks only while `depth` operations wait. On an error that it returns (INVALID_ARGUMENT: slot
  // or size), done is not called. A failed write leaves the slot unwritten.
  absl::Status StartWrite(int slot, absl::Span<const uint8_t> bytes, SwapDone done);
  // Starts reading what was last written, into exactly as many bytes (else INVALID_ARGUMENT).
  absl::Status StartRead(int slot, absl::Span<uint8_t> to, SwapDone done);

  int num_slots() const { return static_cast<int>(slots_.size()); }
  // Reserved on the disk.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  struct Slot {
    int64_t offset = 0, size_bytes = 0;  // constant
    int64_t written_bytes = -1;          // guarded by mutex_; negative: not written
    uint32_t crc = 0;                    // guarded by mutex_
  };
  SwapFile(const SwapFileOptions& options, int file);
  absl::Status Reserve();
  absl::Status CheckSlot(int slot) const;
  absl::Status Write(int slot, absl::Span<const uint8_t> bytes);
  absl::Status Read(int slot, absl::Span<uint8_t> to, uint32_t crc) const;
  // What the system said of an operation.
  absl::Status FromErrno(int error, int slot, const char* operation) const;

  const std::string path_;
  const int file_;
  int64_t size_bytes_ = 0;
  std::mutex mutex_;
  std::vector<Slot> slots_;
  IoThreads threads_;  // last, so that its work is done before anything else goes
};

}  // namespace tessera

#endif  // TESSERA_STORAGE_SWAP_FILE_H_
