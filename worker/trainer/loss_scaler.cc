#include "worker/trainer/loss_scaler.h"

#include <algorithm>

namespace tessera {
namespace {

// Beyond, gradients of any model overflow; it also keeps doubling from leaving fp32's range.
constexpr double kLargestScale = 0x1p+40;

}  // namespace

void LossScaler::Update(bool overflowed) {
  if (overflowed) {
    good_steps_ = 0;
    if (--tolerated_ > 0) return;
    // Stays at 1 or below: from here on every overflow in a row halves.
    tolerated_ = 1;
    exhausted_ = scale_ <= options_.minimum;
    scale_ = std::max(options_.minimum, scale_ / 2);
    return;
  }
  if (++good_steps_ < options_.growth_interval) return;
  good_steps_ = 0;
  tolerated_ = options_.hysteresis;
  scale_ = std::min(kLargestScale, scale_ * 2);
}

}  // namespace tessera
