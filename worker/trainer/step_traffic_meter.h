// What a step really sent, beside what plan/step_traffic predicts.
#ifndef TESSERA_WORKER_TRAINER_STEP_TRAFFIC_METER_H_
#define TESSERA_WORKER_TRAINER_STEP_TRAFFIC_METER_H_

#include <array>
#include <iterator>
#include <vector>

#include "plan/step_traffic.h"
#include "worker/comm/communicator.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/training_config.h"

namespace tessera {

// Pure.
plan::TrafficRequest MakeTrafficRequest(const TrainingConfig& config);

// Used by the thread that trains; the groups outlive it.
class StepTrafficMeter {
 public:
  StepTrafficMeter(const TrainingConfig& config, const MeshGroups& groups);

  // Between Begin and End lies one step.
  void Begin() { before_ = Now(); }
  // Between Pause and Resume lies what is no part of a step.
  void Pause() { paused_ = Now(); }
  void Resume();
  // By axis, then kind; only what was used or predicted.
  std::vector<TrafficLine> End() const;

 private:
  using Counts = std::array<CommunicatorStats, std::size(plan::kGroupAxes)>;
  Counts Now() const;

  const std::array<const Communicator*, std::size(plan::kGroupAxes)> groups_;
  const plan::StepTraffic predicted_;
  Counts before_ = {};
  Counts paused_ = {};
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_STEP_TRAFFIC_METER_H_
