// Rules of spec.offload, and what it says in the words of plan/.
#include "coordinator/offload_validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/match.h"
#include "coordinator/controller_testing.h"
#include "coordinator/spec_layout.h"
#include "coordinator/spec_validation.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

using Change = std::function<void(v1::TrainingJobSpec&)>;

v1::TrainingJobSpec Spec() { return Request("", 1).training_job().spec(); }

v1::TrainingJobSpec All(v1::Tier tier) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_offload()->mutable_optimizer()->set_tier(tier);
  spec.mutable_offload()->mutable_gradients()->set_tier(tier);
  spec.mutable_offload()->mutable_parameters()->set_tier(tier);
  return spec;
}

TEST(OffloadValidation, RulesNameFieldAndReason) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  struct Case {
    const char* name;
    absl::StatusCode code;
    const char* field;
    const char* rule;  // a part of the message
    Change change;     // of All(TIER_NVME)
  };
  const Case cases[] = {
      {"tier_missing", kInvalid, "spec.offload.optimizer.tier", "required",
       [](auto& s) { s.mutable_offload()->mutable_optimizer()->clear_tier(); }},
      {"tier_off_the_list", kInvalid, "spec.offload.optimizer.tier", "is not a value of this enum",
       [](auto& s) {
         s.mutable_offload()->mutable_optimizer()->set_tier(static_cast<v1::Tier>(9));
       }},
      {"gradients_tier_missing", kInvalid, "spec.offload.gradients.tier", "required",
       [](auto& s) { s.mutable_offload()->mutable_gradients()->clear_tier(); }},
      {"fraction_0", kInvalid, "spec.offload.optimizer.fraction", "above 0 and at most 1",
       [](auto& s) { s.mutable_offload()->mutable_optimizer()->set_fraction(0); }},
      {"fraction_above_1", kInvalid, "spec.offload.parameters.fraction", "above 0 and at most 1",
       [](auto& s) { s.mutable_offload()->mutable_parameters()->set_fraction(1.5); }},
      {"fraction_inf", kInvalid, "spec.offload.optimizer.fraction",
       "spec.offload.optimizer.fraction: inf: must be above 0 and at most 1",
       [](auto& s) {
         s.mutable_offload()->mutable_optimizer()->set_fraction(
             std::numeric_limits<double>::infinity());
       }},
      {"fraction_of_optimizer_nan", kInvalid, "spec.offload.optimizer.fraction",
       "spec.offload.optimizer.fraction: nan: must be above 0 and at most 1",
       [](auto& s) { s.mutable_offload()->mutable_optimizer()->set_fraction(std::nan("")); }},
      {"fraction_nan", kInvalid, "spec.offload.gradients.fraction", "above 0 and at most 1",
       [](auto& s) { s.mutable_offload()->mutable_gradients()->set_fraction(std::nan("")); }},
      {"gradients_alone", kInvalid, "spec.offload.gradients", "needs spec.offload.optimizer",
       [](auto& s) { s.mutable_offload()->clear_optimizer(); }},
      {"parameters_alone", kInvalid, "spec.offload.parameters", "needs spec.offload.optimizer",
       [](auto& s) {
         s.mutable_offload()->clear_optimizer();
         s.mutable_offload()->clear_gradients();
       }},
      {"gradients_beyond", kInvalid, "spec.offload.gradients.tier",
       "nvme: must not be beyond spec.offload.optimizer.tier (host)",
       [](auto& s) { s.mutable_offload()->mutable_optimizer()->set_tier(v1::TIER_HOST); }},
      {"more_gradients", kInvalid, "spec.offload.gradients.fraction",
       "1: must be at most spec.offload.optimizer.fraction (0.5)",
       [](auto& s) { s.mutable_offload()->mutable_optimizer()->set_fraction(0.5); }},
      {"more_parameters", kInvalid, "spec.offload.parameters.fraction", "(0.5)",
       [](auto& s) {
         s.mutable_offload()->mutable_optimizer()->set_fraction(0.5);
         s.mutable_offload()->mutable_gradients()->set_fraction(0.25);
       }},
      {"activations_without_recompute", kInvalid, "spec.offload.activations",
       "needs spec.recompute full", [](auto& s) { s.mutable_offload()->set_activations(true); }},
      {"activations_with_attention", kInvalid, "spec.offload.activations",
       "needs spec.recompute full",
       [](auto& s) {
         s.mutable_offload()->set_activations(true);
         s.set_recompute(v1::RECOMPUTE_ATTENTION);
       }},
      {"few_buffers", kInvalid, "spec.offload.buffers", "3 .. 1024",
       [](auto& s) { s.mutable_offload()->set_buffers(2); }},
      {"many_buffers", kInvalid, "spec.offload.buffers", "3 .. 1024",
       [](auto& s) { s.mutable_offload()->set_buffers(1025); }},
      {"small_buffers", kInvalid, "spec.offload.buffer_bytes", "65536 .. 1073741824",
       [](auto& s) { s.mutable_offload()->set_buffer_bytes(4096); }},
      {"large_buffers", kInvalid, "spec.offload.buffer_bytes", "65536 .. 1073741824",
       [](auto& s) { s.mutable_offload()->set_buffer_bytes((1 << 30) + 4096); }},
      {"odd_buffers", kInvalid, "spec.offload.buffer_bytes", "multiple of 4096",
       [](auto& s) { s.mutable_offload()->set_buffer_bytes(65537); }},
      {"buffers_without_nvme", kInvalid, "spec.offload.buffers", "only with tier nvme",
       [](auto& s) {
         s = All(v1::TIER_HOST);
         s.mutable_offload()->set_buffers(4);
       }},
      {"buffer_bytes_without_nvme", kInvalid, "spec.offload.buffer_bytes", "only with tier nvme",
       [](auto& s) {
         s.clear_offload();
         s.mutable_offload()->set_buffer_bytes(65536);
       }},
      {"verification", kUnimplemented, "spec.offload",
       "spec.offload: not supported by this version: must be absent in a verification, which holds "
       "all state on the device",
       [](auto& s) { s.mutable_verification(); }},
      {"clipping_before_reduce", kUnimplemented, "spec.offload.gradients", "before_reduce",
       [](auto& s) {
         s.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
       }},
      {"low_priority", kInvalid, "spec.priority", "-1000 .. 1000",
       [](auto& s) { s.set_priority(-1001); }},
      {"high_priority", kInvalid, "spec.priority", "-1000 .. 1000",
       [](auto& s) { s.set_priority(1001); }},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = All(v1::TIER_NVME);
    c.change(spec);
    const absl::Status status = ValidateSpec(spec);
    EXPECT_EQ(status.code(), c.code) << c.name << " " << status;
    EXPECT_EQ(FieldOf(status).value_or(""), c.field) << c.name << " " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.rule)) << c.name << " " << status;
  }
}

TEST(OffloadValidation, AcceptsWhatKeepsTheRules) {
  struct Case {
    const char* name;
    Change change;  // of All(TIER_NVME)
  };
  const Case cases[] = {
      {"all_on_nvme", [](auto&) {}},
      {"all_on_host", [](auto& s) { s = All(v1::TIER_HOST); }},
      {"empty", [](auto& s) { s.mutable_offload()->Clear(); }},
      {"nearer_parameters",
       [](auto& s) { s.mutable_offload()->mutable_parameters()->set_tier(v1::TIER_HOST); }},
      {"smaller_parameters",
       [](auto& s) { s.mutable_offload()->mutable_parameters()->set_fraction(0.1); }},
      {"equal_fractions",
       [](auto& s) {
         s.mutable_offload()->mutable_optimizer()->set_fraction(0.5);
         s.mutable_offload()->mutable_gradients()->set_fraction(0.5);
         s.mutable_offload()->mutable_parameters()->set_fraction(0.5);
       }},
      {"activations",
       [](auto& s) {
         s.mutable_offload()->set_activations(true);
         s.set_recompute(v1::RECOMPUTE_FULL);
       }},
      {"activations_alone",
       [](auto& s) {
         s.mutable_offload()->Clear();
         s.mutable_offload()->set_activations(true);
         s.set_recompute(v1::RECOMPUTE_FULL);
       }},
      {"buffers",
       [](auto& s) {
         s.mutable_offload()->set_buffers(3);
         s.mutable_offload()->set_buffer_bytes(65536);
       }},
      {"preempts",
       [](auto& s) {
         s.set_priority(1000);
         s.set_preempt(true);
       }},
      {"optimizer_with_clipping_before_reduce",
       [](auto& s) {
         s.mutable_offload()->clear_gradients();
         s.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
       }},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = All(v1::TIER_NVME);
    c.change(spec);
    EXPECT_EQ(ValidateSpec(spec), absl::OkStatus()) << c.name;
  }
}

TEST(OffloadLayout, DefaultsAreFilledIn) {
  const plan::OffloadOptions none = LedgerOf(Spec(), {}, 0).offload;
  EXPECT_FALSE(none.is_on());
  EXPECT_EQ(none.buffers, plan::OffloadOptions::kDefaultBuffers);
  EXPECT_EQ(none.buffer_bytes, plan::OffloadOptions::kDefaultBufferBytes);

  v1::TrainingJobSpec spec = All(v1::TIER_HOST);
  spec.mutable_offload()->mutable_optimizer()->set_tier(v1::TIER_NVME);
  spec.mutable_offload()->mutable_gradients()->set_fraction(0.25);
  spec.mutable_offload()->clear_parameters();
  spec.mutable_offload()->set_activations(true);
  spec.mutable_offload()->set_buffers(7);
  spec.mutable_offload()->set_buffer_bytes(131072);
  const plan::OffloadOptions some = LedgerOf(spec, {}, 0).offload;
  EXPECT_EQ(some.optimizer.tier, plan::Tier::kNvme);
  EXPECT_EQ(some.optimizer.fraction, 1);
  EXPECT_EQ(some.gradients.tier, plan::Tier::kHost);
  EXPECT_EQ(some.gradients.fraction, 0.25);
  EXPECT_FALSE(some.parameters.is_on());
  EXPECT_TRUE(some.activations);
  EXPECT_EQ(some.buffers, 7);
  EXPECT_EQ(some.buffer_bytes, 131072);
  EXPECT_TRUE(some.commits_steps());
}

}  // namespace
}  // namespace tessera
