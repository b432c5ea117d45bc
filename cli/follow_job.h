// Watching a job to its end.
#ifndef TESSERA_CLI_FOLLOW_JOB_H_
#define TESSERA_CLI_FOLLOW_JOB_H_

#include <string>

#include "cli/command.h"
#include "cli/jobs_client.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

struct FollowedJob {
  int exit_code;
  v1::TrainingJob job;  // as it ended; empty where the watch did not get so far
};

// Shows progress on stderr until the job ends, and says what went wrong. SIGINT detaches: the job
// goes on.
FollowedJob FollowJob(const CommandContext& context, JobsClient& client, const std::string& name);

}  // namespace tessera

#endif  // TESSERA_CLI_FOLLOW_JOB_H_
