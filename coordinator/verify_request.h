// The job that VerifyTrainingJob creates: a pure function of the request.
#ifndef TESSERA_COORDINATOR_VERIFY_REQUEST_H_
#define TESSERA_COORDINATOR_VERIFY_REQUEST_H_

#include "absl/status/statusor.h"
#include "proto/tessera/v1/jobs.pb.h"

namespace tessera {

// What CreateTrainingJob would be asked for, with the same ids. INVALID_ARGUMENT for a field of
// VerifyTrainingJobRequest that breaks its rule; the spec is not looked at.
absl::StatusOr<v1::CreateTrainingJobRequest> VerificationJobOf(
    const v1::VerifyTrainingJobRequest& request);

}  // namespace tessera

#endif  // TESSERA_COORDINATOR_VERIFY_REQUEST_H_
