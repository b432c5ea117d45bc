// The transport of CPU workers: mapped memory between processes of one host, TCP between hosts, and
// groups that span hosts use each where it is.
#ifndef TESSERA_WORKER_COMM_CPU_TRANSPORT_H_
#define TESSERA_WORKER_COMM_CPU_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_device.h"
#include "worker/comm/arena_cache.h"
#include "worker/comm/endpoint.h"
#include "worker/comm/rendezvous.h"
#include "worker/comm/tcp_mesh.h"
#include "worker/comm/transport.h"

namespace tessera {

struct CpuTransportOptions {
  // Where processes of this host find each other; created with mode 0700. Those that shall share
  // memory must be given the same directory. Empty: memory is not shared.
  std::string socket_dir = "";
  // Address of this host under which other hosts reach it, numeric. Empty: TCP is not used.
  std::string tcp_ip = "";
  // Processes with different labels treat each other as other hosts.
  std::string host_label = "";
};

// Owns its listening sockets, one thread that listens and, with TCP, one that moves data.
class CpuTransport : public Transport {
 public:
  // The device outlives the transport. INVALID_ARGUMENT where neither a directory nor an address is
  // given or one is unusable; UNAVAILABLE where the system refuses a socket. Nothing is held on
  // failure.
  static absl::StatusOr<std::unique_ptr<CpuTransport>> Create(CpuDevice& device,
                                                              const CpuTransportOptions& options);
  ~CpuTransport() override;

  std::string address() const override { return own_.ToString(); }
  std::string host_id() const override { return own_.host_id; }
  absl::StatusOr<std::unique_ptr<Communicator>> Join(const GroupSpec& spec) override;
  void AbortJoins(absl::string_view job_uid, int64_t epoch, const absl::Status& reason) override;

 private:
  class Joining;

  CpuTransport(CpuDevice& device, std::string socket_dir, Endpoint own,
               std::shared_ptr<TcpDevice> tcp, std::unique_ptr<Rendezvous> rendezvous);

  CpuDevice& device_;
  const std::string socket_dir_;
  const Endpoint own_;
  const std::shared_ptr<TcpDevice> tcp_;  // null without TCP
  ArenaCache arenas_;
  const std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_CPU_TRANSPORT_H_
