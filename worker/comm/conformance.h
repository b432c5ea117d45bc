// The promises of communicator.h as tests, run by every implementation: instantiate
// CommunicatorConformance with a World.
#ifndef TESSERA_WORKER_COMM_CONFORMANCE_H_
#define TESSERA_WORKER_COMM_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "worker/comm/transport.h"

namespace tessera {

// What the body of a test gets: one rank of `size`.
struct TestRank {
  int index = 0;
  int size = 1;
  Transport* transport = nullptr;
  CpuDevice* device = nullptr;
  Stream* stream = nullptr;
  std::vector<std::string> addresses;  // of all ranks

  // All ranks as one group.
  GroupSpec Spec(const std::string& name, int64_t epoch = 1) const;
  // A group of some, in the given order; group_rank is this rank's place.
  GroupSpec Spec(const std::string& name, int64_t epoch, const std::vector<int>& ranks) const;
  // Joins or fails the test; null on failure.
  std::unique_ptr<Communicator> Join(const GroupSpec& spec) const;
};

constexpr int64_t kTestArenaBytes = int64_t{64} << 20;

// Runs bodies on ranks of one implementation.
class World {
 public:
  virtual ~World() = default;
  // Runs body once per rank, all at once, and returns when all have. Failures of EXPECT in a body
  // fail the test.
  virtual void Run(int size, const std::function<void(TestRank&)>& body) = 0;
};

// Ranks as threads. make_transports: one transport per device, in order; they go before the
// devices. `state` is kept alive with them.
class ThreadWorld : public World {
 public:
  struct Transports {
    std::shared_ptr<void> state;
    std::vector<std::unique_ptr<Transport>> transports;
  };
  using Factory = std::function<Transports(const std::vector<CpuDevice*>& devices)>;
  explicit ThreadWorld(Factory factory) : factory_(std::move(factory)) {}
  void Run(int size, const std::function<void(TestRank&)>& body) override;

 private:
  const Factory factory_;
};

struct WorldParam {
  std::string name;
  std::function<std::unique_ptr<World>()> make;
  bool is_one_process = true;  // bodies may share variables of the test
};
inline void PrintTo(const WorldParam& param, std::ostream* os) { *os << param.name; }

class CommunicatorConformance : public testing::TestWithParam<WorldParam> {
 protected:
  void Run(int size, const std::function<void(TestRank&)>& body) {
    GetParam().make()->Run(size, body);
  }
};

inline std::string WorldName(const testing::TestParamInfo<WorldParam>& info) {
  return info.param.name;
}

// GIVEN one value: every rank's tensor is `count` elements of it from the arena.
DeviceBuffer AllocateElements(TestRank& rank, int64_t count, DType dtype);

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_CONFORMANCE_H_
