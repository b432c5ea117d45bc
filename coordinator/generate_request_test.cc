#include "coordinator/generate_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace tessera {
namespace {

using testing::HasSubstr;

v1::GenerateRequest OfJob() {
  v1::GenerateRequest request;
  request.set_training_job("trainingJobs/a");
  request.set_text("x");
  return request;
}

TEST(GenerateRequest, Valid) {
  EXPECT_EQ(ValidateGenerateRequest(OfJob()), absl::OkStatus());
  v1::GenerateRequest request = OfJob();
  request.set_path("gpt2");
  request.mutable_tokens()->add_ids(3);
  request.set_max_new_tokens(1);
  request.set_temperature(0);
  request.set_top_k(40);
  request.set_top_p(1);
  request.add_stop_tokens(0);
  request.set_precision(v1::PRECISION_BF16);
  EXPECT_EQ(ValidateGenerateRequest(request), absl::OkStatus());
}

TEST(GenerateRequest, EachErrorNamesItsField) {
  struct Case {
    std::function<void(v1::GenerateRequest&)> change;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& r) { r.clear_weights(); }, "training_job, path: one of them is required"},
      {[](auto& r) { r.set_path(""); }, "path: required"},
      {[](auto& r) { r.clear_prompt(); }, "text, tokens: one of them is required"},
      {[](auto& r) { r.set_max_new_tokens(0); }, "max_new_tokens: 0: must be at least 1"},
      {[](auto& r) { r.set_temperature(-1); }, "temperature: -1: must be a finite number"},
      {[](auto& r) { r.set_temperature(NAN); }, "temperature: nan: must be a finite number"},
      {[](auto& r) { r.set_temperature(INFINITY); }, "temperature: inf: must be a finite number"},
      {[](auto& r) { r.set_top_k(-1); }, "top_k: -1: must be at least 0"},
      {[](auto& r) { r.set_top_p(0); }, "top_p: 0: must be above 0 and at most 1"},
      {[](auto& r) { r.set_top_p(1.01); }, "top_p: 1.01: must be above 0 and at most 1"},
      {[](auto& r) { r.set_top_p(NAN); }, "top_p: nan: must be above 0"},
      {[](auto& r) { r.add_stop_tokens(-2); }, "stop_tokens: -2: must be at least 0"},
      {[](auto& r) { r.set_precision(v1::PRECISION_FP32); },
       "precision: PRECISION_FP32: goes with path only"},
      {[](auto& r) { r.set_precision(static_cast<v1::Precision>(9)); }, "precision: 9: must be"},
  };
  for (const Case& c : cases) {
    v1::GenerateRequest request = OfJob();
    c.change(request);
    EXPECT_THAT(ValidateGenerateRequest(request).ToString(),
                HasSubstr("INVALID_ARGUMENT: " + c.message));
  }
}

}  // namespace
}  // namespace tessera
