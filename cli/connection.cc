#include "cli/connection.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tessera {
namespace {

constexpr char kDefaultEndpoint[] = "127.0.0.1:7433";

std::string Environment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

void Fill(std::string& value, const std::string& fallback) {
  if (value.empty()) value = fallback;
}

absl::Status ReadContext(const std::string& path, ConnectionOptions& options) {
  try {
    const YAML::Node node = YAML::LoadFile(path);
    for (const auto& entry : node) {
      const std::string key = entry.first.as<std::string>();
      const std::string value = entry.second.as<std::string>();
      if (key == "endpoint") {
        Fill(options.endpoint, value);
      } else if (key == "cacert") {
        Fill(options.ca, value);
      } else if (key == "cert") {
        Fill(options.cert, value);
      } else if (key == "key") {
        Fill(options.key, value);
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": ", key, ": unknown key; known are endpoint, cacert, cert, key"));
      }
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConnectionOptions> ResolveConnection(ConnectionOptions given) {
  ConnectionOptions options = std::move(given);
  Fill(options.endpoint, Environment("TESSERA_ENDPOINT"));
  Fill(options.ca, Environment("TESSERA_CACERT"));
  Fill(options.cert, Environment("TESSERA_CERT"));
  Fill(options.key, Environment("TESSERA_KEY"));
  Fill(options.context, Environment("TESSERA_CONFIG"));
  const bool named = !options.context.empty();
  if (!named) {
    Fill(options.context, absl::StrCat(Environment("HOME"), "/.config/tessera/config.yaml"));
  }
  if (std::filesystem::exists(options.context)) {
    absl::Status status = ReadContext(options.context, options);
    if (!status.ok()) return status;
  } else if (named) {
    return absl::InvalidArgumentError(absl::StrCat(options.context, ": no such context file"));
  }
  Fill(options.endpoint, kDefaultEndpoint);
  return options;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const ConnectionOptions& options) {
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials =
      ClientTls({options.cert, options.key, options.ca}, {"--cert", "--key", "--cacert"});
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  // A watch should soon be back after a restart of the coordinator.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  return grpc::CreateCustomChannel(options.endpoint, *credentials, arguments);
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace tessera
