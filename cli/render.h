// Jobs, workers and placements as people read them.
#ifndef TESSERA_CLI_RENDER_H_
#define TESSERA_CLI_RENDER_H_

#include <string>
#include <vector>

#include "proto/tessera/v1/cluster.pb.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// "RUNNING"
std::string StateName(v1::JobState state);
bool IsTerminal(v1::JobState state);
// "1.2 MB" with decimal prefixes; "1.2 MB (1234567)", below 1000 as it is; "3m12s".
std::string HumanBytes(double bytes);
std::string ExactBytes(int64_t bytes);
std::string HumanSeconds(double seconds);
// "dp=1 cp=1 pp=2 tp=2": the axes outermost first, defaults filled in.
std::string MeshText(const v1::MeshSpec& mesh);
// Bytes as text: what is not printable becomes \xNN; newlines stay.
std::string Printable(const std::string& bytes);

std::string JobTable(const std::vector<v1::TrainingJob>& jobs, bool wide);
std::string WorkerTable(const std::vector<v1::Worker>& workers, bool wide);
// wide: one line a shard besides one line a rank.
std::string PlacementTable(const v1::Placement& placement, bool wide);
// Everything about one job, with its loss curve, its traffic, where its time goes, its memory
// (wide: of every rank) and what it has verified.
std::string DescribeJob(const v1::TrainingJob& job, bool wide);
// What is told of a job that has been asked to end, to make room, or to go on.
std::string CancelAnswer(const v1::TrainingJob& job);
std::string SuspendAnswer(const v1::TrainingJob& job);
std::string ResumeAnswer(const v1::TrainingJob& job);
// "step 120/1500  loss 2.3456  val 2.4012  18.2k tokens/s  1m12s left"
std::string ProgressLine(const v1::TrainingJob& job);

}  // namespace tessera

#endif  // TESSERA_CLI_RENDER_H_
