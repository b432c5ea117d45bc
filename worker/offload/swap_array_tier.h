// Gradients on the nvme tier's disk, in a file that no restart needs.
#ifndef TESSERA_WORKER_OFFLOAD_SWAP_ARRAY_TIER_H_
#define TESSERA_WORKER_OFFLOAD_SWAP_ARRAY_TIER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/swap_file.h"
#include "worker/offload/array_tier.h"
#include "worker/offload/tier_buffers.h"
#include "worker/offload/tier_meter.h"
#include "worker/offload/tier_transfer.h"

namespace tessera {

// An array lies in slots of at most a buffer's size. What is stored is copied to a buffer and
// written behind; what is fetched is read to where it belongs. buffers and meter outlive it.
class SwapArrayTier : public ArrayTier {
 public:
  // folder: on the disk, of this worker alone.
  SwapArrayTier(std::string folder, TierBuffers& buffers, TierMeter& meter)
      : folder_(std::move(folder)), buffers_(buffers), meter_(meter) {}

  absl::Status AddUnit(int unit, const std::string& name, DType dtype, int64_t elements) override;
  // Makes the file. RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Prepare() override;
  absl::Status Store(int unit, const Tensor& from, Stream& stream) override;
  absl::Status StartFetch(int unit, const Tensor& to, Stream& stream) override;
  absl::Status FinishFetch(int unit) override;

  int64_t size_bytes() const { return file_ == nullptr ? 0 : file_->size_bytes(); }

 private:
  // Operations of one unit that are under way at a time.
  static constexpr size_t kDepth = 8;

  struct Unit {
    int first_slot = 0;
    int64_t piece_elements = 0;
    std::vector<TierTransfer> writes;  // the last one of each slot
    Tensor to;                         // of the fetch, as the host sees it
    int64_t next = 0;                  // element of it from which on nothing has been started
    std::deque<TierTransfer> reads;
  };

  TierCounts& counts() { return meter_.of(plan::Tier::kNvme); }
  // What was last written to the slot is there.
  absl::Status FinishWrite(Unit& unit, int64_t piece);
  absl::Status StartReads(Unit& unit);

  const std::string folder_;
  TierBuffers& buffers_;
  TierMeter& meter_;
  std::vector<int64_t> slot_size_bytes_;
  std::map<int, Unit> units_;
  std::unique_ptr<SwapFile> file_;  // ends first: its operations use what units hold
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_SWAP_ARRAY_TIER_H_
