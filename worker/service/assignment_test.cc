#include "worker/service/assignment.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tessera {
namespace {

v1::RankAssignment Valid() {
  v1::RankAssignment assignment;
  assignment.set_job("trainingJobs/a");
  assignment.set_job_uid("uid");
  assignment.set_epoch(3);
  assignment.set_collective_timeout_ms(5000);
  assignment.mutable_spec()->mutable_mesh()->set_dp(2);
  assignment.mutable_coordinates()->set_global_rank(1);
  assignment.mutable_coordinates()->set_dp_rank(1);
  const plan::MeshSize mesh{.dp = 2, .cp = 1, .pp = 1, .tp = 1};
  for (plan::GroupAxis axis : plan::kGroupAxes) {
    const plan::Group group = plan::GroupOf(mesh, 1, axis);
    v1::GroupAssignment& part = *assignment.add_groups();
    part.set_name(group.name);
    part.set_axis(plan::GroupAxisName(axis));
    part.set_group_rank(group.group_rank);
    for (int member : group.members) {
      v1::GroupMember& entry = *part.add_members();
      entry.set_global_rank(member);
      entry.set_worker("workers/w" + std::to_string(member));
      entry.set_address("address " + std::to_string(member));
    }
  }
  return assignment;
}

TEST(Assignment, BecomesGroupSpecsInAxisOrder) {
  const GroupSpecs specs = *VerifyAssignment(Valid(), "workers/w1");
  EXPECT_EQ(specs[0].name, "dp[cp=0,pp=0,tp=0]");
  EXPECT_EQ(specs[0].group_rank, 1);
  EXPECT_EQ(specs[0].members[0].address, "address 0");
  EXPECT_EQ(specs[0].epoch, 3);
  EXPECT_EQ(specs[0].timeout, absl::Seconds(5));
  EXPECT_EQ(specs[3].members.size(), 1u);
  EXPECT_EQ(specs[4].name, "zero[pp=0,tp=0]");
}

TEST(Assignment, WhateverDisagreesIsRefused) {
  const std::pair<const char*, std::function<void(v1::RankAssignment&)>> cases[] = {
      {"rank too large", [](auto& a) { a.mutable_coordinates()->set_global_rank(2); }},
      {"negative rank", [](auto& a) { a.mutable_coordinates()->set_global_rank(-1); }},
      {"coordinates", [](auto& a) { a.mutable_coordinates()->set_dp_rank(0); }},
      {"no groups", [](auto& a) { a.clear_groups(); }},
      {"group name", [](auto& a) { a.mutable_groups(0)->set_name("dp"); }},
      {"group rank", [](auto& a) { a.mutable_groups(0)->set_group_rank(0); }},
      {"member order", [](auto& a) { a.mutable_groups(0)->mutable_members()->SwapElements(0, 1); }},
      {"member count", [](auto& a) { a.mutable_groups(4)->mutable_members()->RemoveLast(); }},
      {"another worker", [](auto& a) { a.mutable_groups(2)->mutable_members(0)->set_worker("x"); }},
      {"mesh", [](auto& a) { a.mutable_spec()->mutable_mesh()->set_dp(-1); }},
  };
  for (const auto& [name, change] : cases) {
    v1::RankAssignment assignment = Valid();
    change(assignment);
    EXPECT_EQ(VerifyAssignment(assignment, "workers/w1").status().code(),
              absl::StatusCode::kInternal)
        << name;
  }
}

}  // namespace
}  // namespace tessera
