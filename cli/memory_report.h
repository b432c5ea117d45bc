// Memory of a job, of devices and of other tiers, predicted and measured, as people read it.
#ifndef TESSERA_CLI_MEMORY_REPORT_H_
#define TESSERA_CLI_MEMORY_REPORT_H_

#include <string>

#include "proto/tessera/v1/plan.pb.h"
#include "proto/tessera/v1/training_job.pb.h"

namespace tessera {

// One line for each of the first `rows` stages: predicted bytes of the device by category (total:
// of the device), and, where something is offloaded, of the host and on nvme.
std::string StageMemoryTable(const v1::TrainingPlan& plan, int rows);

// Predicted against measured by category, of the rank that holds most, or of all (wide). Empty
// where nothing is known.
std::string JobMemoryTable(const v1::TrainingJobStatus& status, bool wide);

}  // namespace tessera

#endif  // TESSERA_CLI_MEMORY_REPORT_H_
