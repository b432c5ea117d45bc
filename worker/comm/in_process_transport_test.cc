#include "worker/comm/in_process_transport.h"

#include "worker/comm/conformance.h"

namespace tessera {
namespace {

ThreadWorld::Transports MakeTransports(const std::vector<CpuDevice*>& devices) {
  auto hub = std::make_shared<InProcessHub>();
  ThreadWorld::Transports result{hub, {}};
  for (CpuDevice* device : devices) result.transports.push_back(hub->CreateTransport(*device));
  return result;
}

INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorConformance,
                         testing::Values(WorldParam{
                             "threads",
                             [] { return std::make_unique<ThreadWorld>(MakeTransports); }}),
                         WorldName);

}  // namespace
}  // namespace tessera
