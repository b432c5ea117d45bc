// The learning rate of each step: a pure function.
#ifndef TESSERA_WORKER_TRAINER_LEARNING_RATE_H_
#define TESSERA_WORKER_TRAINER_LEARNING_RATE_H_

#include <cstdint>

namespace tessera {

struct LearningRateSchedule {
  double peak = 0;
  double final = 0;          // reached at the last step; unused without decay
  int64_t warmup_steps = 0;  // step s <= warmup_steps has peak * s / warmup_steps
  int64_t steps = 1;
  bool cosine = true;  // else constant at peak after the warm-up
};

// Rate of step s, 1 <= s <= steps: linear warm-up, then half a cosine from peak at the end of the
// warm-up to final at the last step (Loshchilov and Hutter, arXiv 1608.03983, equation 5, without
// restarts).
double LearningRateAt(const LearningRateSchedule& schedule, int64_t step);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_LEARNING_RATE_H_
