#include "proto/rpc/status.h"

#include <grpcpp/support/status.h>

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

std::string Payload(const absl::Status& status, const char* url) {
  absl::optional<absl::Cord> payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::StatusCode Canonical(int code) {
  return code >= 0 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

}  // namespace

google::rpc::Status ToProto(const absl::Status& status) {
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  const std::string reason = ReasonOf(status);
  if (!reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.set_domain("tessera");
    if (FieldOf(status).has_value()) {
      (*info.mutable_metadata())["field"] = Payload(status, kFieldPayload);
      (*info.mutable_metadata())["value"] = Payload(status, kValuePayload);
      (*info.mutable_metadata())["rule"] = Payload(status, kRulePayload);
    }
    proto.add_details()->PackFrom(info);
  }
  if (FieldOf(status).has_value()) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(Payload(status, kFieldPayload));
    violation->set_description(
        absl::StrCat(Payload(status, kValuePayload), ": ", Payload(status, kRulePayload)));
    proto.add_details()->PackFrom(bad);
  }
  return proto;
}

absl::Status FromProto(const google::rpc::Status& proto) {
  absl::Status status(Canonical(proto.code()), proto.message());
  if (status.ok()) return status;
  for (const google::protobuf::Any& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    if (!detail.UnpackTo(&info)) continue;
    status = WithReason(status, info.reason());
    auto copy = [&](const char* key, const char* url) {
      auto it = info.metadata().find(key);
      if (it != info.metadata().end()) status.SetPayload(url, absl::Cord(it->second));
    };
    copy("field", kFieldPayload);
    copy("value", kValuePayload);
    copy("rule", kRulePayload);
  }
  return status;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      ToProto(status).SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status proto;
  if (!status.error_details().empty() && proto.ParseFromString(status.error_details()) &&
      proto.code() == static_cast<int>(status.error_code())) {
    return FromProto(proto);
  }
  return absl::Status(Canonical(status.error_code()), status.error_message());
}

}  // namespace tessera
