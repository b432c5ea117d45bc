// Model state of a model of which only the number of parameters is known, by zero_stage: a table
// before there is a model (ZeRO, arXiv 1910.02054, section 3.1 and table 1). What a job of a known
// model holds, padding, activations and buffers included, is the ledger's (plan/ledger.h).
//
// P parameters on d devices, bytes per device with k bytes of optimizer state a parameter:
//   zero_stage 0: (2 + 2 + k) P    1: (2 + 2 + k/d) P    2: (2 + (2 + k)/d) P    3: (2 + 2 + k)/d P
// A share of P that is not whole is rounded up.
#ifndef TESSERA_PLAN_MODEL_STATE_H_
#define TESSERA_PLAN_MODEL_STATE_H_

#include <cstdint>
#include <optional>

namespace tessera::plan {

// Bytes of one parameter in each kind of state.
struct ParameterBytes {
  int64_t weight = 2;
  int64_t gradient = 2;
  int64_t optimizer = 12;  // AdamW: master weight and two moments, fp32
};
inline constexpr ParameterBytes kMixedPrecisionBytes = {2, 2, 12};
inline constexpr ParameterBytes kFp32Bytes = {4, 4, 8};  // the weight is its own master

// The most parameters for which nothing overflows: 1e17.
inline constexpr int64_t kMaxModelParameters = 100'000'000'000'000'000;

struct ModelState {
  int64_t parameters_bytes = 0;
  int64_t gradients_bytes = 0;
  int64_t optimizer_bytes = 0;

  int64_t total_bytes() const { return parameters_bytes + gradients_bytes + optimizer_bytes; }
};

// REQUIRES in all: 1 <= parameters <= kMaxModelParameters; 0 <= zero_stage <= 3; devices >= 1.

// What one device holds.
ModelState ModelStateOf(int64_t parameters, const ParameterBytes& bytes, int zero_stage,
                        int64_t devices);

// Elements that one device sends, and receives, in a step with ring collectives:
// 2 P (d - 1) / d, with zero_stage 3 3 P (d - 1) / d (section 7).
int64_t ModelTrafficElements(int64_t parameters, int zero_stage, int64_t devices);

// The fewest devices of memory_bytes each that hold the state; nothing if no number of them does.
std::optional<int64_t> FewestDevices(int64_t parameters, const ParameterBytes& bytes,
                                     int zero_stage, int64_t memory_bytes);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_MODEL_STATE_H_
