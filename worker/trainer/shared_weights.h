// Reads whole parameters on one rank while the ranks that hold their parts serve them.
#ifndef TESSERA_WORKER_TRAINER_SHARED_WEIGHTS_H_
#define TESSERA_WORKER_TRAINER_SHARED_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/model/model_part.h"
#include "worker/zero/zero_optimizer.h"
#include "worker/zero/zero_store.h"

namespace tessera {

// Used by one thread. A parameter travels in pieces: over the zero group (where the state is
// sharded; else only its first ranks take part), then over tp, each rank adds what it has of it to
// zeros, then the stage's first rank sends the sum along pp. Groups, store, optimizer and device
// outlive it.
class SharedWeights {
 public:
  // RESOURCE_EXHAUSTED from the arena.
  static absl::StatusOr<std::unique_ptr<SharedWeights>> Create(const ModelConfig& config,
                                                               const ZeroStore& store,
                                                               const ZeroOptimizer& optimizer,
                                                               Communicator& zero, Communicator& pp,
                                                               Communicator& tp, Device& device);

  // Names of the whole model's parameters, in forward order.
  std::vector<std::string> names() const;
  absl::StatusOr<Shape> ShapeOf(absl::string_view name) const;  // whole; NOT_FOUND

  // On global_rank 0 (`is_reader`) runs body, in which Read works; the others serve it until it
  // ends, and return OK or a communicator's error. Collective over all ranks of the job.
  absl::Status Share(const std::function<absl::Status()>& body, Stream& stream);
  // Elements of a whole parameter's state from `begin` on. NOT_FOUND for a wrong name. REQUIRES:
  // inside Share, or a model that is not split; in range.
  absl::Status Read(StateArray array, absl::string_view name, int64_t begin,
                    absl::Span<float> values, Stream& stream) const;

 private:
  // What the reader asks for; number -1: no more.
  struct Request {
    int64_t parameter = -1;  // among names()
    int64_t begin = 0;
    int64_t count = 0;
    StateArray array = StateArray::kMaster;
  };
  struct Entry {
    std::string name;
    Shape shape;
    bool is_here = false;
    ParameterId id;  // where it is here
  };

  SharedWeights(const ZeroStore& store, const ZeroOptimizer& optimizer, Communicator& zero,
                Communicator& pp, Communicator& tp, Device& device)
      : store_(store), optimizer_(optimizer), zero_(zero), pp_(pp), tp_(tp), device_(device) {}
  bool is_sharded() const { return store_.options().zero_stage > 0; }
  bool is_split() const { return is_sharded() || pp_.size() * tp_.size() > 1; }
  bool is_first_of_zero() const { return zero_.group_rank() == 0; }
  bool is_reader() const {
    return is_first_of_zero() && pp_.group_rank() == 0 && tp_.group_rank() == 0;
  }
  absl::Status Exchange(Request& request, Stream& stream) const;
  // This rank's elements of the range, 0 where it has none.
  absl::Status CollectOwn(const Entry& entry, const Request& request, absl::Span<float> values,
                          Stream& stream) const;
  absl::Status Answer(const Request& request, absl::Span<float> values, Stream& stream) const;

  const ZeroStore& store_;
  const ZeroOptimizer& optimizer_;
  Communicator& zero_;
  Communicator& pp_;
  Communicator& tp_;
  Device& device_;
  std::vector<Entry> entries_;
  DeviceBuffer request_;  // int64 (4)
  DeviceBuffer piece_;    // fp32
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_SHARED_WEIGHTS_H_
