#include "worker/trainer/step_timeline.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "worker/pipeline_parallel/measured_timeline.h"

namespace tessera {

absl::StatusOr<plan::Timeline> GatherTimeline(const std::vector<plan::StageActions>& actions,
                                              const std::vector<MeasuredAction>& measured,
                                              std::string title, Communicator& pp, Device& device,
                                              Stream& stream) {
  std::vector<std::vector<MeasuredAction>> ranks;
  std::vector<std::string> names;
  for (int rank = 0; rank < pp.size(); ++rank) {
    const plan::StageActions& list = actions[rank];
    const Shape shape{2 * static_cast<int64_t>(list.size())};
    TESSERA_ASSIGN_OR_RETURN(
        const DeviceBuffer buffer,
        device.Allocate(shape.num_elements() * static_cast<int64_t>(sizeof(int64_t)),
                        MemoryCategory::kCommunication, "timeline"));
    const Tensor tensor = buffer.View(DType::kInt64, shape);
    std::vector<int64_t> times;  // begin and end of each, nanoseconds
    for (const MeasuredAction& each : measured) {
      if (rank != pp.group_rank()) break;
      for (const auto time : {each.begin, each.end}) {
        times.push_back(
            std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
      }
    }
    times.resize(shape.num_elements());
    TESSERA_RETURN_IF_ERROR(device.CopyIn(times.data(), tensor.size_bytes(), tensor, stream));
    TESSERA_RETURN_IF_ERROR(pp.Broadcast(tensor, rank, stream));
    TESSERA_RETURN_IF_ERROR(device.CopyOut(tensor, times.data(), tensor.size_bytes(), stream));
    TESSERA_RETURN_IF_ERROR(stream.Synchronize());
    auto time_at = [&](size_t i) {
      return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(times[i]));
    };
    ranks.emplace_back();
    for (size_t i = 0; i < list.size(); ++i) {
      ranks.back().push_back({list[i], time_at(2 * i), time_at(2 * i + 1)});
    }
    const GroupSpec::Member& member = pp.group().members[rank];
    names.push_back(
        absl::StrCat("pp_rank ", rank, ", global_rank ", member.global_rank, ", ", member.worker));
  }
  return MeasuredTimeline(ranks, std::move(names), std::move(title));
}

}  // namespace tessera
