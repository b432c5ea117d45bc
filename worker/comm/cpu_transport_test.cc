#include "worker/comm/cpu_transport.h"

#include <stdlib.h>

#include "worker/comm/conformance.h"

namespace tessera {
namespace {

// A new directory, which goes with the object.
struct TempDir {
  TempDir() { EXPECT_NE(mkdtemp(path), nullptr); }
  ~TempDir() { rmdir(path); }
  char path[32] = "/tmp/tessera-comm-XXXXXX";
};

ThreadWorld::Transports MakeMapped(const std::vector<CpuDevice*>& devices) {
  auto dir = std::make_shared<TempDir>();
  ThreadWorld::Transports result{dir, {}};
  for (CpuDevice* device : devices) {
    result.transports.push_back(*CpuTransport::Create(*device, {.socket_dir = dir->path}));
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Mapped, CommunicatorConformance,
                         testing::Values(WorldParam{
                             "threads", [] { return std::make_unique<ThreadWorld>(MakeMapped); }}),
                         WorldName);

}  // namespace
}  // namespace tessera
