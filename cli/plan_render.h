// A training plan as people read it.
#ifndef TESSERA_CLI_PLAN_RENDER_H_
#define TESSERA_CLI_PLAN_RENDER_H_

#include <string>

#include "proto/tessera/v1/plan.pb.h"

namespace tessera {

// Axes, schedule, ranks with their groups, stages, positions, device memory and traffic. Long lists
// end with how many entries are left out; wide: none. Long groups show their ends in any case.
std::string PlanTable(const v1::TrainingPlan& plan, bool wide);

}  // namespace tessera

#endif  // TESSERA_CLI_PLAN_RENDER_H_
