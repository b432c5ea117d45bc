#include "worker/comm/cpu_transport.h"

#include "worker/comm/conformance.h"
#include "worker/comm/process_world.h"

namespace tessera {
namespace {

// One transport per device, each with what options(rank) says; a directory is filled in.
WorldParam Threads(const std::string& name,
                   const std::function<CpuTransportOptions(int rank)>& options) {
  const auto make_transports = [options](const std::vector<CpuDevice*>& devices) {
    auto dir = std::make_shared<TempDir>();
    ThreadWorld::Transports result{dir, {}};
    for (CpuDevice* device : devices) {
      CpuTransportOptions own = options(static_cast<int>(result.transports.size()));
      if (own.socket_dir == "DIR") own.socket_dir = dir->path;
      result.transports.push_back(*CpuTransport::Create(*device, own));
    }
    return result;
  };
  return {name, [=] { return std::make_unique<ThreadWorld>(make_transports); }};
}

CpuTransportOptions Mapped(int) { return {.socket_dir = "DIR"}; }
CpuTransportOptions Tcp(int) { return {.tcp_ip = "127.0.0.1"}; }
// Two hosts: ranks 0, 3, 4, 7 on one, 1, 2, 5, 6 on the other; neither is a block of ranks.
CpuTransportOptions Hybrid(int rank) {
  const bool is_first = (rank + 1) / 2 % 2 == 0;
  return {.socket_dir = "DIR", .tcp_ip = "127.0.0.1", .host_label = is_first ? "a" : "b"};
}

WorldParam Processes(const std::string& name,
                     const std::function<CpuTransportOptions(int rank)>& options) {
  return {name, [=] { return std::make_unique<ProcessWorld>(options); }};
}

INSTANTIATE_TEST_SUITE_P(Processes, CommunicatorConformance,
                         testing::Values(Processes("mapped", Mapped)), WorldName);

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorConformance,
                         testing::Values(Threads("mapped", Mapped), Threads("tcp", Tcp),
                                         Threads("hybrid", Hybrid)),
                         WorldName);

}  // namespace
}  // namespace tessera
