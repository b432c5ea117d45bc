#include "worker/service/assignment.h"

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

absl::Status Disagrees(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the assignment is not consistent: ", what));
}

int SizeOf(int32_t value) { return value == 0 ? 1 : value; }

}  // namespace

absl::StatusOr<GroupSpecs> VerifyAssignment(const v1::RankAssignment& assignment,
                                            const std::string& own_worker) {
  const v1::MeshSpec& spec = assignment.spec().mesh();
  const plan::MeshSize mesh{.dp = SizeOf(spec.dp()),
                            .cp = SizeOf(spec.cp()),
                            .pp = SizeOf(spec.pp()),
                            .tp = SizeOf(spec.tp())};
  absl::Status status = plan::CheckMesh(mesh);
  if (!status.ok()) return Disagrees(status.message());
  const v1::MeshCoordinates& given = assignment.coordinates();
  if (given.global_rank() < 0 || given.global_rank() >= mesh.world_size()) {
    return Disagrees(
        absl::StrCat("global_rank ", given.global_rank(), " of a mesh of ", mesh.world_size()));
  }
  const plan::Coordinates at = plan::CoordinatesOf(mesh, given.global_rank());
  if (at.dp_rank != given.dp_rank() || at.cp_rank != given.cp_rank() ||
      at.pp_rank != given.pp_rank() || at.tp_rank != given.tp_rank()) {
    return Disagrees(absl::StrCat("coordinates of global_rank ", given.global_rank()));
  }

  GroupSpecs specs;
  if (assignment.groups_size() != static_cast<int>(specs.size())) {
    return Disagrees(absl::StrCat(assignment.groups_size(), " groups"));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const plan::Group expected = plan::GroupOf(mesh, given.global_rank(), plan::kGroupAxes[i]);
    const v1::GroupAssignment& group = assignment.groups(static_cast<int>(i));
    bool agrees = group.name() == expected.name && group.group_rank() == expected.group_rank &&
                  group.members_size() == static_cast<int>(expected.members.size());
    for (int m = 0; agrees && m < group.members_size(); ++m) {
      agrees = group.members(m).global_rank() == expected.members[m];
    }
    agrees = agrees && group.members(group.group_rank()).worker() == own_worker;
    if (!agrees) return Disagrees(absl::StrCat("group ", group.name(), " of ", own_worker));

    GroupSpec& out = specs[i];
    out.name = group.name();
    out.job_uid = assignment.job_uid();
    out.epoch = assignment.epoch();
    out.group_rank = group.group_rank();
    if (assignment.collective_timeout_ms() > 0) {
      out.timeout = absl::Milliseconds(assignment.collective_timeout_ms());
    }
    for (const v1::GroupMember& member : group.members()) {
      out.members.push_back({member.global_rank(), member.worker(), member.address()});
    }
  }
  return specs;
}

}  // namespace tessera
