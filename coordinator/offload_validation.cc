#include "coordinator/offload_validation.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/spec_layout.h"
#include "plan/offload.h"

namespace tessera {
namespace {

constexpr char kOptimizer[] = "spec.offload.optimizer";

// field: "spec.offload.optimizer", ...
void CheckState(const v1::StateOffload& state, const std::string& field, SpecCheck& check) {
  const std::string tier = field + ".tier";
  check.Enumerated(state.tier(), v1::Tier_IsValid(state.tier()), tier);
  check.Require(state.tier() != v1::TIER_UNSPECIFIED, tier, "", "required: host or nvme");
  if (!state.has_fraction()) return;
  check.Require(state.fraction() > 0 && state.fraction() <= 1, field + ".fraction",
                state.fraction(), "must be above 0 and at most 1");
}

// Gradients and parameters of a unit go only where its optimizer state is, or less far.
void CheckBesideOptimizer(const v1::OffloadSpec& offload, const v1::StateOffload& state,
                          const std::string& field, SpecCheck& check) {
  CheckState(state, field, check);
  check.Require(offload.has_optimizer(), field, "", absl::StrCat("needs ", kOptimizer));
  const plan::StateOffload of_state = OffloadOf(state),
                           of_optimizer = OffloadOf(offload.optimizer());
  check.Require(of_state.tier <= of_optimizer.tier, field + ".tier", plan::TierName(of_state.tier),
                absl::StrCat("must not be beyond ", kOptimizer, ".tier (",
                             plan::TierName(of_optimizer.tier), "): device, host, nvme"));
  check.Require(
      of_state.fraction <= of_optimizer.fraction, field + ".fraction", of_state.fraction,
      absl::StrCat("must be at most ", kOptimizer, ".fraction (", of_optimizer.fraction, ")"));
}

}  // namespace

void CheckOffload(const v1::TrainingJobSpec& spec, SpecCheck& check) {
  if (!spec.has_offload()) return;
  const v1::OffloadSpec& offload = spec.offload();
  if (offload.has_optimizer()) CheckState(offload.optimizer(), kOptimizer, check);
  if (offload.has_gradients()) {
    CheckBesideOptimizer(offload, offload.gradients(), "spec.offload.gradients", check);
  }
  if (offload.has_parameters()) {
    CheckBesideOptimizer(offload, offload.parameters(), "spec.offload.parameters", check);
  }
  check.Require(!offload.activations() || spec.recompute() == v1::RECOMPUTE_FULL,
                "spec.offload.activations", "true", "needs spec.recompute full");
  // All other state is at most as far away as the optimizer's.
  constexpr absl::string_view kOnlyNvme = "only with tier nvme in spec.offload";
  const bool uses_nvme = OffloadOf(spec).uses_nvme();
  if (offload.has_buffers()) {
    check.Range(offload.buffers(), plan::OffloadOptions::kFewestBuffers, 1024,
                "spec.offload.buffers");
    check.Require(uses_nvme, "spec.offload.buffers", offload.buffers(), kOnlyNvme);
  }
  if (offload.has_buffer_bytes()) {
    check.Range(offload.buffer_bytes(), 65536, 1 << 30, "spec.offload.buffer_bytes");
    check.Require(offload.buffer_bytes() % 4096 == 0, "spec.offload.buffer_bytes",
                  offload.buffer_bytes(), "must be a multiple of 4096");
    check.Require(uses_nvme, "spec.offload.buffer_bytes", offload.buffer_bytes(), kOnlyNvme);
  }
}

void CheckOffloadSupported(const v1::TrainingJobSpec& spec, SpecCheck& check) {
  check.Support(!spec.has_offload() || !spec.has_verification(), "spec.offload", "",
                "must be absent in a verification, which holds all state on the device");
  check.Support(!spec.offload().has_gradients() ||
                    spec.optimizer().gradient_clipping() != v1::GRADIENT_CLIPPING_BEFORE_REDUCE,
                "spec.offload.gradients", "",
                "must be absent with spec.optimizer.gradient_clipping before_reduce");
}

}  // namespace tessera
