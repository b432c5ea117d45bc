#include "coordinator/generate_request.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/rpc/field_error.h"

namespace tessera {

absl::Status ValidateGenerateRequest(const v1::GenerateRequest& request) {
  const bool of_job = request.weights_case() == v1::GenerateRequest::kTrainingJob;
  if (request.weights_case() == v1::GenerateRequest::WEIGHTS_NOT_SET) {
    return InvalidField("training_job, path", "", "one of them is required");
  }
  if (!of_job && request.path().empty()) return InvalidField("path", "", "required");
  if (request.prompt_case() == v1::GenerateRequest::PROMPT_NOT_SET) {
    return InvalidField("text, tokens", "", "one of them is required: the prompt");
  }
  if (request.has_max_new_tokens() && request.max_new_tokens() < 1) {
    return InvalidField("max_new_tokens", absl::StrCat(request.max_new_tokens()),
                        "must be at least 1");
  }
  if (request.has_temperature() &&
      !(std::isfinite(request.temperature()) && request.temperature() >= 0)) {
    return InvalidField("temperature", absl::StrCat(request.temperature()),
                        "must be a finite number of at least 0");
  }
  if (request.top_k() < 0) {
    return InvalidField("top_k", absl::StrCat(request.top_k()), "must be at least 0");
  }
  if (request.has_top_p() && !(request.top_p() > 0 && request.top_p() <= 1)) {
    return InvalidField("top_p", absl::StrCat(request.top_p()), "must be above 0 and at most 1");
  }
  for (const int32_t token : request.stop_tokens()) {
    if (token < 0) return InvalidField("stop_tokens", absl::StrCat(token), "must be at least 0");
  }
  if (!v1::Precision_IsValid(request.precision())) {
    return InvalidField("precision", absl::StrCat(request.precision()), "must be a known value");
  }
  if (of_job && request.precision() != v1::PRECISION_UNSPECIFIED) {
    return InvalidField("precision", v1::Precision_Name(request.precision()),
                        "goes with path only: a job has its own");
  }
  return absl::OkStatus();
}

}  // namespace tessera
