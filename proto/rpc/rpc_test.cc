#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/google/rpc/error_details.pb.h"
#include "proto/rpc/credentials.h"
#include "proto/rpc/field_error.h"
#include "proto/rpc/resource_name.h"
#include "proto/rpc/status.h"

namespace tessera {
namespace {

TEST(Status, FieldErrorsSurviveTheWire) {
  const absl::Status sent = InvalidField("spec.mesh.dp", "3", "must divide 8");
  const absl::Status received = FromGrpc(ToGrpc(sent));
  EXPECT_EQ(received.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(received.message(), "spec.mesh.dp: 3: must divide 8");
  EXPECT_EQ(FieldOf(received), "spec.mesh.dp");
  EXPECT_EQ(ReasonOf(received), "INVALID_FIELD");
}

TEST(Status, DetailsAreReadableByGenericTools) {
  google::rpc::Status proto = ToProto(FieldError(absl::StatusCode::kUnimplemented, "f", "v", "r"));
  ASSERT_EQ(proto.details_size(), 2);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(proto.details(1).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "f");
}

TEST(Status, ForeignStatusesKeepCodeAndMessage) {
  const absl::Status status = FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no route"));
  EXPECT_EQ(status, absl::UnavailableError("no route"));
  google::rpc::Status odd;
  odd.set_code(99);
  EXPECT_EQ(FromProto(odd).code(), absl::StatusCode::kUnknown);
}

TEST(ResourceName, Ids) {
  for (const char* good : {"a", "demo", "a-1", "job-20-x"}) {
    EXPECT_EQ(*JobId(JobName(good), "name"), good);
  }
  for (std::string bad : {"", "A", "1a", "a-", "a_b", "a/b", "trainingJobs/a"}) {
    EXPECT_FALSE(CheckResourceId(bad, "id").ok()) << bad;
  }
  EXPECT_FALSE(CheckResourceId(std::string(64, 'a'), "id").ok());
  EXPECT_EQ(FieldOf(JobId("jobs/a", "name").status()), "name");
}

TEST(Credentials, RefusesFilesThatDoNotGoTogetherOrAreNotPem) {
  EXPECT_FALSE(ServerTls({.certificate = "x"}).ok());
  EXPECT_FALSE(ClientTls({.certificate = "x", .key = "y"}).ok());
  EXPECT_NE(ClientTls({.ca = "/nowhere.pem"}).status().message().find("--tls-ca: /nowhere.pem"),
            absl::string_view::npos);
  EXPECT_EQ(ClientTls({.certificate = "x"}, {"--cert", "--key", "--cacert"}).status().message(),
            "a TLS client needs --cacert, and --cert only together with --key");
  EXPECT_TRUE(ServerTls({}).ok());
}

TEST(Credentials, OnlyLoopbackWithoutTls) {
  EXPECT_TRUE(CheckExposure("127.0.0.1:0", {}, false).ok());
  EXPECT_TRUE(CheckExposure("[::1]:7433", {}, false).ok());
  EXPECT_EQ(CheckExposure("0.0.0.0:7433", {}, false).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(CheckExposure("0.0.0.0:7433", {}, true).ok());
  EXPECT_TRUE(CheckExposure("0.0.0.0:7433", {.certificate = "c", .key = "k"}, false).ok());
}

}  // namespace
}  // namespace tessera
