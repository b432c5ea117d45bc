// The mesh of ranks: axes, coordinates and groups. The only place where they are computed.
//
// Axes outermost to innermost: dp, cp, pp, tp (other projects order cp and pp the other way):
//   global_rank = ((dp_rank * cp_size + cp_rank) * pp_size + pp_rank) * tp_size + tp_rank
#ifndef TESSERA_PLAN_MESH_H_
#define TESSERA_PLAN_MESH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tessera::plan {

inline constexpr char kAxisOrder[] = "dp, cp, pp, tp";

struct MeshSize {
  int dp = 1;
  int cp = 1;
  int pp = 1;
  int tp = 1;
  // REQUIRES: CheckMesh is OK.
  int world_size() const { return dp * cp * pp * tp; }
};

// INVALID_ARGUMENT naming the axis if a size is below 1 or the product is above 65536.
absl::Status CheckMesh(const MeshSize& mesh);

struct Coordinates {
  int global_rank = 0;
  int dp_rank = 0;
  int cp_rank = 0;
  int pp_rank = 0;
  int tp_rank = 0;
};

// REQUIRES: CheckMesh is OK; 0 <= global_rank < world_size. The inverse of GlobalRank.
Coordinates CoordinatesOf(const MeshSize& mesh, int global_rank);
int GlobalRank(const MeshSize& mesh, int dp_rank, int cp_rank, int pp_rank, int tp_rank);

// Groups of a rank. kZero = dp x cp: parameters are replicated over both, so ZeRO shards over both.
enum class GroupAxis : uint8_t { kDp, kCp, kPp, kTp, kZero };
inline constexpr GroupAxis kGroupAxes[] = {GroupAxis::kDp, GroupAxis::kCp, GroupAxis::kPp,
                                           GroupAxis::kTp, GroupAxis::kZero};
const char* GroupAxisName(GroupAxis axis);

// "dp[cp=0,pp=1,tp=0]": the fixed coordinates; unique in the mesh.
std::string GroupName(const Coordinates& at, GroupAxis axis);

struct Group {
  GroupAxis axis = GroupAxis::kDp;
  std::string name;          // GroupName
  std::vector<int> members;  // global ranks, ascending along the axis (zero: dp outer, cp inner)
  int group_rank = 0;        // index of the rank it was made for
};

// The group of global_rank along axis. REQUIRES as CoordinatesOf.
Group GroupOf(const MeshSize& mesh, int global_rank, GroupAxis axis);

}  // namespace tessera::plan

#endif  // TESSERA_PLAN_MESH_H_
