// Which of a rank's state leaves its device, and for which tier: pure decisions.
#ifndef TESSERA_PLAN_OFFLOAD_H_
#define TESSERA_PLAN_OFFLOAD_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::plan {

enum class Tier : uint8_t { kDevice, kHost, kNvme };
// "device", "host", "nvme".
const char* TierName(Tier tier);

// One kind of state.
struct StateOffload {
  Tier tier = Tier::kDevice;
  double fraction = 1;  // of the rank's elements, at least; 0 < fraction <= 1

  bool is_on() const { return tier != Tier::kDevice; }
};

struct OffloadOptions {
  static constexpr int kDefaultBuffers = 12;
  static constexpr int64_t kDefaultBufferBytes = 4 << 20;
  // Whoever has none of its own takes so many to save a job's state.
  static constexpr int kFewestBuffers = 3;

  // Gradients and parameters of a unit are only offloaded where its optimizer state is.
  StateOffload optimizer, gradients, parameters;
  // Inputs of layers that are recomputed in full wait in host memory.
  bool activations = false;
  int buffers = kDefaultBuffers;
  int64_t buffer_bytes = kDefaultBufferBytes;

  bool is_on() const { return optimizer.is_on() || activations; }
  // Every step's state, all of it, is committed to the nvme tier.
  bool commits_steps() const {
    return optimizer.tier == Tier::kNvme || parameters.tier == Tier::kNvme;
  }
  bool uses_nvme() const { return commits_steps() || gradients.tier == Tier::kNvme; }
};

// Which units are offloaded: from the last one on, until at least the fraction of all elements is.
// elements: of the rank's units, in forward order.
std::vector<bool> OffloadedUnits(const StateOffload& offload, absl::Span<const int64_t> elements);

// A unit's optimizer state (master, exp_avg, exp_avg_sq: fp32 each) is saved, and moved, in pieces
// of at most so many elements, a multiple of kUnitAlignmentElements (plan/unit_sizes.h).
int64_t StatePieceElements(int64_t buffer_bytes);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_OFFLOAD_H_
