#include "proto/rpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path, absl::string_view flag) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || !absl::StrContains(text.str(), "-----BEGIN")) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, ": not a readable PEM file"));
  }
  return text.str();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files) {
  if (!files.enabled()) return grpc::InsecureServerCredentials();
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError("a TLS server needs both --tls-cert and --tls-key");
  }
  grpc::SslServerCredentialsOptions options(
      files.ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                       : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  absl::StatusOr<std::string> certificate = ReadPem(files.certificate, "--tls-cert");
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadPem(files.key, "--tls-key");
  if (!key.ok()) return key.status();
  options.pem_key_cert_pairs.push_back({*key, *certificate});
  if (!files.ca.empty()) {
    absl::StatusOr<std::string> ca = ReadPem(files.ca, "--tls-ca");
    if (!ca.ok()) return ca.status();
    options.pem_root_certs = *ca;
  }
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const TlsFiles& files,
                                                                    const TlsFlagNames& flags) {
  if (!files.enabled()) return grpc::InsecureChannelCredentials();
  if (files.ca.empty() || files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a TLS client needs ", flags.ca, ", and ",
                                                   flags.certificate, " only together with ",
                                                   flags.key));
  }
  grpc::SslCredentialsOptions options;
  absl::StatusOr<std::string> ca = ReadPem(files.ca, flags.ca);
  if (!ca.ok()) return ca.status();
  options.pem_root_certs = *ca;
  if (!files.certificate.empty()) {
    absl::StatusOr<std::string> certificate = ReadPem(files.certificate, flags.certificate);
    if (!certificate.ok()) return certificate.status();
    absl::StatusOr<std::string> key = ReadPem(files.key, flags.key);
    if (!key.ok()) return key.status();
    options.pem_cert_chain = *certificate;
    options.pem_private_key = *key;
  }
  return grpc::SslCredentials(options);
}

absl::Status CheckExposure(const std::string& address, const TlsFiles& files, bool allow_insecure) {
  const bool loopback = absl::StartsWith(address, "127.") || absl::StartsWith(address, "[::1]:") ||
                        absl::StartsWith(address, "localhost:") ||
                        absl::StartsWith(address, "unix:");
  if (loopback || allow_insecure || files.enabled()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--listen=", address,
                   " is not loopback and has no TLS: give --tls-cert and --tls-key (and --tls-ca "
                   "for mutual TLS), or --allow-insecure"));
}

}  // namespace tessera
