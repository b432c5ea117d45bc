// Weights on the nvme tier: written with every step, and read for every use.
#ifndef TESSERA_WORKER_OFFLOAD_NVME_ARRAY_TIER_H_
#define TESSERA_WORKER_OFFLOAD_NVME_ARRAY_TIER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "worker/offload/array_tier.h"
#include "worker/offload/state_saver.h"
#include "worker/offload/tier_transfer.h"

namespace tessera {

// What is stored belongs to the step that the saver writes, what is fetched comes from the last one
// that is committed. saver outlives it.
class NvmeArrayTier : public ArrayTier {
 public:
  explicit NvmeArrayTier(StateSaver& saver) : saver_(saver) {}

  absl::Status AddUnit(int unit, const std::string& name, DType dtype, int64_t elements) override;
  absl::Status Store(int unit, const Tensor& from, Stream& stream) override;
  absl::Status StartFetch(int unit, const Tensor& to, Stream& stream) override;
  absl::Status FinishFetch(int unit) override;

 private:
  // Reads of one unit that are under way at a time.
  static constexpr size_t kDepth = 8;

  struct Unit {
    std::string name;
    int64_t elements = 0;
    int64_t piece_elements = 0;
    Tensor to;         // of the fetch, as the host sees it
    int64_t next = 0;  // element of it from which on nothing has been started
    std::deque<TierTransfer> reads;
  };

  void StartReads(Unit& unit);

  StateSaver& saver_;
  std::map<int, Unit> units_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OFFLOAD_NVME_ARRAY_TIER_H_
