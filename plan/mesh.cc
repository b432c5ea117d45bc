#include "plan/mesh.h"

#include "absl/strings/str_cat.h"

namespace tessera::plan {
namespace {

// Whether a group along `axis` has ranks that differ in `coordinate`.
bool IsOver(GroupAxis axis, GroupAxis coordinate) {
  if (axis == coordinate) return true;
  return axis == GroupAxis::kZero && (coordinate == GroupAxis::kDp || coordinate == GroupAxis::kCp);
}

}  // namespace

absl::Status CheckMesh(const MeshSize& mesh) {
  int64_t product = 1;
  const std::pair<const char*, int> axes[] = {
      {"dp", mesh.dp}, {"cp", mesh.cp}, {"pp", mesh.pp}, {"tp", mesh.tp}};
  for (const auto& [name, size] : axes) {
    if (size < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", size, ": must be at least 1"));
    }
    product *= size;
    if (product > 65536) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", size, ": the mesh has more than 65536 ranks"));
    }
  }
  return absl::OkStatus();
}

Coordinates CoordinatesOf(const MeshSize& mesh, int global_rank) {
  Coordinates at;
  at.global_rank = global_rank;
  at.tp_rank = global_rank % mesh.tp;
  global_rank /= mesh.tp;
  at.pp_rank = global_rank % mesh.pp;
  global_rank /= mesh.pp;
  at.cp_rank = global_rank % mesh.cp;
  at.dp_rank = global_rank / mesh.cp;
  return at;
}

int GlobalRank(const MeshSize& mesh, int dp_rank, int cp_rank, int pp_rank, int tp_rank) {
  return ((dp_rank * mesh.cp + cp_rank) * mesh.pp + pp_rank) * mesh.tp + tp_rank;
}

const char* GroupAxisName(GroupAxis axis) {
  switch (axis) {
    case GroupAxis::kDp:
      return "dp";
    case GroupAxis::kCp:
      return "cp";
    case GroupAxis::kPp:
      return "pp";
    case GroupAxis::kTp:
      return "tp";
    case GroupAxis::kZero:
      return "zero";
  }
  return "unknown";
}

std::string GroupName(const Coordinates& at, GroupAxis axis) {
  const char* separator = "";
  std::string group = absl::StrCat(GroupAxisName(axis), "[");
  auto fix = [&](bool over, const char* name, int value) {
    if (over) return;
    absl::StrAppend(&group, separator, name, "=", value);
    separator = ",";
  };
  fix(IsOver(axis, GroupAxis::kDp), "dp", at.dp_rank);
  fix(IsOver(axis, GroupAxis::kCp), "cp", at.cp_rank);
  fix(IsOver(axis, GroupAxis::kPp), "pp", at.pp_rank);
  fix(IsOver(axis, GroupAxis::kTp), "tp", at.tp_rank);
  return group + "]";
}

Group GroupOf(const MeshSize& mesh, int global_rank, GroupAxis axis) {
  const Coordinates at = CoordinatesOf(mesh, global_rank);
  const bool over_dp = IsOver(axis, GroupAxis::kDp);
  const bool over_cp = IsOver(axis, GroupAxis::kCp);
  const bool over_pp = IsOver(axis, GroupAxis::kPp);
  const bool over_tp = IsOver(axis, GroupAxis::kTp);

  Group group;
  group.axis = axis;
  group.name = GroupName(at, axis);
  for (int dp = over_dp ? 0 : at.dp_rank; dp <= (over_dp ? mesh.dp - 1 : at.dp_rank); ++dp) {
    for (int cp = over_cp ? 0 : at.cp_rank; cp <= (over_cp ? mesh.cp - 1 : at.cp_rank); ++cp) {
      for (int pp = over_pp ? 0 : at.pp_rank; pp <= (over_pp ? mesh.pp - 1 : at.pp_rank); ++pp) {
        for (int tp = over_tp ? 0 : at.tp_rank; tp <= (over_tp ? mesh.tp - 1 : at.tp_rank); ++tp) {
          const int member = GlobalRank(mesh, dp, cp, pp, tp);
          if (member == global_rank) group.group_rank = static_cast<int>(group.members.size());
          group.members.push_back(member);
        }
      }
    }
  }
  return group;
}

}  // namespace tessera::plan
