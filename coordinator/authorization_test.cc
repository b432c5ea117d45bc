#include "coordinator/authorization.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Authorization, RolesDecideWhatACertificateMayDo) {
  const Authorization authorization(true, {"worker"}, {"root"});
  struct Case {
    std::vector<std::string> identities;
    Role role;
    bool may_attach, may_use;
  };
  const Case cases[] = {
      {{"alice"}, Role::kUser, false, true},
      {{}, Role::kUser, false, true},
      {{"127.0.0.1", "worker"}, Role::kWorker, true, false},
      {{"root"}, Role::kAdmin, true, true},
      {{"worker", "root"}, Role::kAdmin, true, true},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(authorization.RoleOf(c.identities), c.role);
    EXPECT_EQ(authorization.CheckMayAttach(c.identities).ok(), c.may_attach);
    EXPECT_EQ(authorization.CheckMayUse(c.identities).ok(), c.may_use);
  }
}

TEST(Authorization, WithoutClientCertificatesEveryoneMay) {
  const Authorization authorization(false, {"worker"}, {});
  EXPECT_TRUE(authorization.CheckMayAttach({}).ok());
  EXPECT_TRUE(authorization.CheckMayUse({"worker"}).ok());
}

}  // namespace
}  // namespace tessera
