#include "worker/trainer/learning_rate.h"

#include <cmath>
#include <numbers>

namespace tessera {

double LearningRateAt(const LearningRateSchedule& schedule, int64_t step) {
  if (step <= schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  if (!schedule.cosine) return schedule.peak;
  const double progress = static_cast<double>(step - schedule.warmup_steps) /
                          static_cast<double>(schedule.steps - schedule.warmup_steps);
  const double share = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return schedule.final + (schedule.peak - schedule.final) * share;
}

}  // namespace tessera
