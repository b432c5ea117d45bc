// TLS and mutual TLS of servers and clients, from files named by flags.
#ifndef TESSERA_PROTO_RPC_CREDENTIALS_H_
#define TESSERA_PROTO_RPC_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace tessera {

// PEM files. Server: certificate and key give TLS; a ca besides gives mutual TLS, and a client
// without a certificate of that ca is refused. Client: a ca gives TLS; certificate and key besides
// give mutual TLS. All empty: no TLS.
struct TlsFiles {
  std::string certificate = {};
  std::string key = {};
  std::string ca = {};
  bool enabled() const { return !certificate.empty() || !key.empty() || !ca.empty(); }
};

// How a program calls them, for errors.
struct TlsFlagNames {
  const char* certificate = "--tls-cert";
  const char* key = "--tls-key";
  const char* ca = "--tls-ca";
};

// INVALID_ARGUMENT names the flag for files that cannot be read or that do not go together.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const TlsFiles& files,
                                                                    const TlsFlagNames& flags = {});

// OK for a loopback address ("127.0.0.1:0", "[::1]:80", "localhost:80", "unix:..."), or with TLS,
// or when allowed; else FAILED_PRECONDITION naming the flags that would change it.
absl::Status CheckExposure(const std::string& address, const TlsFiles& files, bool allow_insecure);

}  // namespace tessera

#endif  // TESSERA_PROTO_RPC_CREDENTIALS_H_
