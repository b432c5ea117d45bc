// The CPU as a device: budgeted memory, which peers on the same host may map, and immediate
// streams.
#ifndef TESSERA_KERNELS_CPU_CPU_DEVICE_H_
#define TESSERA_KERNELS_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tessera {

// What backs the arena.
enum class CpuMemory {
  kShared,     // a memfd: peers may map it
  kHugePages,  // of this process alone, of huge pages where the system has them: the host tier's
};

// Owns the memory, which goes with the object. Pages are taken from the system when
// first touched. Thread-safe.
class CpuDevice : public Device {
 public:
  // name is used in errors. capacity_bytes is rounded up to whole pages. num_threads is what one
  // kernel may use (OpenMP). INVALID_ARGUMENT for a capacity or thread count below 1;
  // RESOURCE_EXHAUSTED where the system gives no such mapping; nothing is held on failure.
  static absl::StatusOr<std::unique_ptr<CpuDevice>> Create(std::string name, int64_t capacity_bytes,
                                                           int num_threads = 1,
                                                           CpuMemory memory = CpuMemory::kShared);
  ~CpuDevice() override;
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  absl::string_view name() const override { return name_; }
  Arena& arena() override { return arena_; }
  uint64_t base_address() const override { return reinterpret_cast<uint64_t>(base_); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;
  absl::Status CopyIn(const void* host, int64_t size_bytes, const Tensor& to,
                      Stream& stream) override;
  absl::Status CopyOut(const Tensor& from, void* host, int64_t size_bytes, Stream& stream) override;
  absl::Status Copy(const Tensor& from, const Tensor& to, Stream& stream) override;
  absl::Status SetZero(const Tensor& tensor, Stream& stream) override;

  // Locks the pages, as they come, into the system's memory. RESOURCE_EXHAUSTED: the system's limit
  // forbids it (ulimit -l).
  absl::Status LockPages();

  int num_threads() const { return num_threads_; }
  // The arena's memory as a file descriptor, for peers to map; stays owned by the device. -1: it is
  // not shared.
  int memfd() const { return memfd_; }
  int64_t mapped_bytes() const { return mapped_bytes_; }

 private:
  CpuDevice(std::string name, int memfd, void* base, int64_t mapped_bytes, int num_threads);

  const std::string name_;
  const int memfd_;
  void* const base_;
  const int64_t mapped_bytes_;
  const int num_threads_;
  Arena arena_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_CPU_DEVICE_H_
