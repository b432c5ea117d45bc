// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740, section 3.2; the rule is that of
// Megatron-LM's dynamic scaler).
#ifndef TESSERA_WORKER_TRAINER_LOSS_SCALER_H_
#define TESSERA_WORKER_TRAINER_LOSS_SCALER_H_

#include <cstdint>

namespace tessera {

struct LossScaleOptions {
  double initial = 65536;
  int64_t growth_interval = 1000;  // steps without an overflow after which the scale doubles
  int64_t hysteresis = 2;          // overflows, without a growth in between, before it halves
  double minimum = 1;              // it never falls below
};

// What changes between two steps.
struct LossScaleState {
  double scale = 0;
  int64_t good_steps = 0;  // since the last overflow or growth
  int64_t tolerated = 0;   // overflows until the scale halves
};

// A plain value, the same on every rank because all see the same overflows. Used by one thread.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options)
      : options_(options), scale_(options.initial), tolerated_(options.hysteresis) {}

  double scale() const { return scale_; }
  LossScaleState state() const { return {scale_, good_steps_, tolerated_}; }
  void Restore(const LossScaleState& state) {
    scale_ = state.scale;
    good_steps_ = state.good_steps;
    tolerated_ = state.tolerated;
  }
  // An overflow came at the minimum, so that no scale helps.
  bool is_exhausted() const { return exhausted_; }
  // After every step: whether its gradient was not finite.
  void Update(bool overflowed);

 private:
  const LossScaleOptions options_;
  double scale_;
  int64_t tolerated_;       // overflows until the scale halves
  int64_t good_steps_ = 0;  // since the last overflow or growth
  bool exhausted_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAINER_LOSS_SCALER_H_
