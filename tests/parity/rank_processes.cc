#include "tests/parity/rank_processes.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/status_macros.h"
#include "plan/mesh.h"
#include "worker/comm/cpu_transport.h"
#include "worker/comm/process_world.h"

namespace tessera {
namespace {

constexpr int kMostRanks = 16;
constexpr size_t kAddressBytes = 512;

// What the processes of a run share; zeros at first.
struct Shared {
  pthread_barrier_t published;
  char addresses[kMostRanks][kAddressBytes];
  size_t steps_digest[kMostRanks];
  size_t parameters_digest[kMostRanks];
};

template <typename T>
void AppendBits(const T& value, std::string& text) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

size_t StepsDigest(const std::vector<StepResult>& steps) {
  std::string text;
  for (const StepResult& step : steps) {
    AppendBits(step.loss, text);
    AppendBits(step.gradient_norm, text);
    AppendBits(step.skipped_steps, text);
    AppendBits(step.loss_scale, text);
    AppendBits(step.validation_loss.value_or(-1), text);
  }
  return std::hash<std::string_view>()(text);
}

size_t ParametersDigest(const std::map<std::string, std::vector<float>>& parameters) {
  std::string text;
  for (const auto& [name, values] : parameters) {
    absl::StrAppend(&text, name, "=");
    text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return std::hash<std::string_view>()(text);
}

CpuTransportOptions LinkOptions(RankLink link, int global_rank, const std::string& socket_dir) {
  CpuTransportOptions options;
  if (link != RankLink::kTcp) options.socket_dir = socket_dir;
  if (link == RankLink::kMapped) return options;
  options.tcp_ip = "127.0.0.1";
  options.host_label = absl::StrCat("host", link == RankLink::kTcp ? global_rank : global_rank % 2);
  return options;
}

absl::Status RunRank(const v1::TrainingJobSpec& spec, const JobData& data,
                     const CpuTransportOptions& link, int rank, Shared& shared, ParityRun& run) {
  const ParityOptions options;
  TESSERA_ASSIGN_OR_RETURN(const auto device,
                           CpuDevice::Create(absl::StrCat("cpu:", rank), options.device_bytes));
  TESSERA_ASSIGN_OR_RETURN(const auto transport, CpuTransport::Create(*device, link));
  std::strncpy(shared.addresses[rank], transport->address().c_str(), kAddressBytes - 1);
  pthread_barrier_wait(&shared.published);
  std::vector<std::string> addresses;
  for (int i = 0; i < MeshOf(spec).world_size(); ++i) addresses.emplace_back(shared.addresses[i]);
  return TrainRank(spec, data, options, addresses, rank, *transport, *device, run);
}

}  // namespace

void TrainAsProcesses(const v1::TrainingJobSpec& spec, const JobData& data, RankLink link,
                      const std::function<void(const ParityRun&)>& check) {
  const plan::MeshSize mesh = MeshOf(spec);
  const int size = mesh.world_size();
  ASSERT_LE(size, kMostRanks);
  const TempDir dir;
  const std::shared_ptr<void> memory = ForkSharedMemory(sizeof(Shared));
  auto& shared = *static_cast<Shared*>(memory.get());
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared.published, &attributes, size);
  std::vector<pid_t> processes;
  for (int r = 0; r < size; ++r) {
    processes.push_back(Fork([&] {
      ParityRun run;
      const absl::Status status =
          RunRank(spec, data, LinkOptions(link, r, dir.path), r, shared, run);
      ASSERT_TRUE(status.ok()) << "global_rank " << r << ": " << status;
      shared.steps_digest[r] = StepsDigest(run.steps);
      shared.parameters_digest[r] = ParametersDigest(run.own);
      if (r == 0) check(run);
    }));
  }
  for (const pid_t process : processes) ExpectSuccess(process);
  for (int r = 1; r < size; ++r) {
    EXPECT_EQ(shared.steps_digest[r], shared.steps_digest[0]) << "global_rank " << r;
    const int first = plan::GroupOf(mesh, r, plan::GroupAxis::kZero).members.front();
    EXPECT_EQ(shared.parameters_digest[r], shared.parameters_digest[first]) << "global_rank " << r;
  }
}

}  // namespace tessera
