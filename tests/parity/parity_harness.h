// Trains a spec on one or more ranks of one process, for the numeric tests.
#ifndef TESSERA_TESTS_PARITY_PARITY_HARNESS_H_
#define TESSERA_TESTS_PARITY_PARITY_HARNESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "plan/mesh.h"
#include "proto/tessera/v1/spec.pb.h"
#include "worker/comm/transport.h"
#include "worker/data/token_source.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/verification.h"

namespace tessera {

// Tokens held in memory.
class MemoryTokenSource : public TokenSource {
 public:
  explicit MemoryTokenSource(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  int64_t num_tokens() const override { return static_cast<int64_t>(tokens_.size()); }
  void Read(int64_t begin, absl::Span<int32_t> tokens) const override;

 private:
  const std::vector<int32_t> tokens_;
};

// count ids below vocab, a function of seed. Neighbours depend on each other, so that there is
// something to learn.
std::vector<int32_t> SyntheticTokens(int64_t count, int32_t vocab, uint32_t seed);

struct ParityRun {
  std::vector<StepResult> steps;                         // as rank 0 saw them
  std::map<std::string, std::vector<float>> parameters;  // whole, at the end
  TrainingRecord record;                                 // the same for CompareTraining
  std::map<std::string, std::vector<float>> own;         // what the rank holds at the end
  std::string sample;                                    // of rank 0
  plan::Timeline timeline;                               // of the step that spec.trace names
  ArenaUsage usage;                                      // of rank 0's device
  std::vector<ArenaUsage> usages;                        // of every global_rank's
  // With tiers: of the rank's pool of host memory, and the most that it held on the nvme tier.
  ArenaUsage host_usage;
  int64_t peak_nvme_bytes = 0;
  std::vector<ArenaUsage> host_usages;    // of every global_rank
  std::vector<int64_t> peaks_nvme_bytes;  // likewise
  std::optional<int64_t> suspended_step;  // the run was suspended: its weights are not read
};

// Tiers of every rank: host memory of its own, and a store in a folder of its own under nvme_root.
struct ParityTiers {
  std::string nvme_root;  // empty: none
  int64_t host_bytes = 64 << 20;
  int num_threads = 1;  // of an update on the host
  int nvme_depth = 2;   // values at a time
  std::optional<int64_t> resume_step;
  std::optional<int64_t> suspend_after;  // so many steps
};

struct ParityOptions {
  int num_threads = 1;  // of each rank's device
  int64_t device_bytes = 256 << 20;
  bool collect_parameters = true;
  const WeightReader* weights = nullptr;  // where training starts
  std::optional<ParityTiers> tiers;       // absent: the ranks have none
  // Called on every rank before the first step.
  std::function<absl::Status(Trainer&)> prepare;
  // Called on rank 0 after the last step, where it can read all weights.
  std::function<absl::Status(Trainer&)> finish;
  // Called on rank 0 after every step.
  std::function<void(const StepResult&)> on_step;
};

// Runs spec on the ranks of spec.mesh, threads of this process with a device each. Fails where
// ranks disagree on a step's result or, of a zero group, on a parameter, bit for bit.
absl::StatusOr<ParityRun> TrainInProcess(const v1::TrainingJobSpec& spec, const JobData& data,
                                         const ParityOptions& options = {});

// What each of those ranks does, whatever connects them. addresses: of all global_ranks'
// transports. run: what this rank saw, also where it fails. Its tiers are opened and closed here.
absl::Status TrainRank(const v1::TrainingJobSpec& spec, const JobData& data,
                       const ParityOptions& options, const std::vector<std::string>& addresses,
                       int index, Transport& transport, Device& device, ParityRun& run);

plan::MeshSize MeshOf(const v1::TrainingJobSpec& spec);

// A small model on synthetic data: vocabulary 257, sequence 37, 3 heads of 8.
v1::TrainingJobSpec SmallSpec();

}  // namespace tessera

#endif  // TESSERA_TESTS_PARITY_PARITY_HARNESS_H_
