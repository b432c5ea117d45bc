#include "tests/parity/killed_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/status_macros.h"
#include "worker/comm/cpu_transport.h"
#include "worker/comm/fault_injection.h"
#include "worker/comm/socket_dir.h"
#include "worker/trainer/trainer.h"

namespace tessera {
namespace {

constexpr int64_t kDeviceBytes = 64 << 20;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void ShortSleep() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// One rank in its own process. Its control thread does what a worker's connection to the
// coordinator does.
class RankProcess : private TrainingObserver {
 public:
  RankProcess(SharedRanks& shared, const v1::TrainingJobSpec& spec, int global_rank,
              const KillPoint& point)
      : shared_(shared),
        own_(shared.ranks[global_rank]),
        spec_(spec),
        rank_(global_rank),
        point_(point) {}

  void Run(const JobData& data, const std::string& socket_dir) {
    absl::Status status = Train(data, socket_dir);
    ended_ = true;
    if (control_.joinable()) control_.join();
    own_.is_ok = status.ok();
    // A worker reports its error and what was pending, before the abort or at the error.
    if (pending_.empty()) pending_ = Pending();
    own_.error.Set(absl::StrCat(status.ToString(), "; pending: ", pending_));
    own_.returned_ns = NowNs();
    for (int i = 0; i < static_cast<int>(groups_.size()); ++i) own_.stats[i] = groups_[i]->stats();
    own_.polls = polls_;
    groups_.clear();
  }

 private:
  absl::Status Train(const JobData& data, const std::string& socket_dir) {
    TESSERA_ASSIGN_OR_RETURN(device_, CpuDevice::Create(absl::StrCat("cpu:", rank_), kDeviceBytes));
    TESSERA_ASSIGN_OR_RETURN(transport_,
                             CpuTransport::Create(*device_, {.socket_dir = socket_dir}));
    shared_.addresses[rank_].Set(transport_->address());
    pthread_barrier_wait(&shared_.published);
    const v1::MeshSpec& sizes = spec_.mesh();
    const plan::MeshSize mesh{
        .dp = sizes.dp(), .cp = sizes.cp(), .pp = sizes.pp(), .tp = sizes.tp()};
    for (int axis = 0; axis < kAxes; ++axis) {
      TESSERA_RETURN_IF_ERROR(JoinGroup(plan::GroupOf(mesh, rank_, plan::kGroupAxes[axis]), axis));
    }
    control_ = std::thread([this] { Control(); });
    const plan::Coordinates at = plan::CoordinatesOf(mesh, rank_);
    v1::MeshCoordinates coordinates;
    coordinates.set_global_rank(rank_);
    coordinates.set_dp_rank(at.dp_rank);
    coordinates.set_cp_rank(at.cp_rank);
    coordinates.set_pp_rank(at.pp_rank);
    coordinates.set_tp_rank(at.tp_rank);
    const MeshGroups by_axis{groups_[0].get(), groups_[1].get(), groups_[2].get(), groups_[3].get(),
                             groups_[4].get()};
    TESSERA_ASSIGN_OR_RETURN(auto trainer,
                             Trainer::Create(spec_, coordinates, by_axis, data, nullptr, *device_));
    absl::Status status = trainer->Run(*this);
    if (!status.ok()) {  // as JobRun does
      for (const auto& group : groups_) {
        group->Abort(
            absl::AbortedError(absl::StrCat("workers/w", rank_, " failed: ", status.message())));
      }
    }
    return status;  // the trainer goes before the rank has returned
  }

  absl::Status JoinGroup(const plan::Group& planned, int axis) {
    GroupSpec spec;
    spec.name = planned.name;
    spec.job_uid = "kill";
    spec.group_rank = planned.group_rank;
    for (const int member : planned.members) {
      spec.members.push_back(
          {member, absl::StrCat("workers/w", member), shared_.addresses[member].text});
    }
    TESSERA_ASSIGN_OR_RETURN(auto group, transport_->Join(spec));
    Fault fault;
    const bool dies_here = point_.axis == axis && IsAtOperation();
    fault.global_rank = dies_here ? point_.global_rank : -1;
    fault.kind = point_.where == KillPoint::Where::kBeforeOperation ? Fault::Kind::kDie
                                                                    : Fault::Kind::kDieStarted;
    fault.operation = point_.nth;
    fault.only = point_.kind;
    fault.die = [this] { Die(); };
    groups_.push_back(std::make_unique<FaultInjectionCommunicator>(std::move(group), fault));
    return absl::OkStatus();
  }

  bool IsAtOperation() const {
    return point_.where == KillPoint::Where::kBeforeOperation ||
           point_.where == KillPoint::Where::kStartedOperation;
  }

  void Die() {
    shared_.killed_ns = NowNs();
    Fault::KillProcess();
  }

  std::string Pending() const {
    PendingOperation operation;
    for (const auto& group : groups_) {
      if (!group->pending(&operation)) continue;
      return absl::StrCat(CollectiveKindName(operation.kind), " number ", operation.sequence,
                          " in group ", group->group().name);
    }
    return "";
  }

  void Control() {
    while (!ended_) {
      const int question = shared_.question;
      if (own_.answered != question) {
        own_.pending.Set(Pending());
        own_.answered = question;
      }
      if (shared_.aborted) {
        pending_ = Pending();
        stop_ = true;
        const absl::Status reason = absl::AbortedError(shared_.abort_reason.text);
        for (const auto& group : groups_) group->Abort(reason);
        return;
      }
      ShortSleep();
    }
  }

  absl::Status CheckStop() override {
    ++polls_;
    if (rank_ == point_.global_rank && polls_ == point_.nth) {
      if (point_.where == KillPoint::Where::kBeforeCompute) Die();
      if (point_.where == KillPoint::Where::kInsideCompute) {
        std::thread([this] {
          std::this_thread::sleep_for(point_.delay);
          Die();
        }).detach();
      }
    }
    return stop_ ? absl::AbortedError(shared_.abort_reason.text) : absl::OkStatus();
  }
  void OnStep(const StepResult&) override {}
  void OnStepBegin(int64_t) override {}

  SharedRanks& shared_;
  SharedRanks::Rank& own_;
  const v1::TrainingJobSpec& spec_;
  const int rank_;
  const KillPoint point_;
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<CpuTransport> transport_;
  std::vector<std::unique_ptr<FaultInjectionCommunicator>> groups_;
  std::thread control_;
  std::string pending_;  // at the abort; the control thread's until it is joined
  std::atomic<bool> ended_ = false;
  std::atomic<bool> stop_ = false;
  int64_t polls_ = 0;
};

}  // namespace

bool AwaitFor(double seconds, const std::function<bool()>& done) {
  const int64_t limit_ns = NowNs() + static_cast<int64_t>(seconds * 1e9);
  while (!done()) {
    if (NowNs() > limit_ns) return false;
    ShortSleep();
  }
  return true;
}

ProcessRun::ProcessRun(const v1::TrainingJobSpec& spec, const JobData& data, const KillPoint& point)
    : memory_(ForkSharedMemory(sizeof(SharedRanks))), shared_(*new (memory_.get()) SharedRanks()) {
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared_.published, &attributes, kRanks);
  for (int r = 0; r < kRanks; ++r) {
    processes_[r] = Fork([&] { RankProcess(shared_, spec, r, point).Run(data, dir_.path); });
  }
}

ProcessRun::~ProcessRun() {
  for (const pid_t process : processes_) {  // those of a test that has failed
    if (process <= 0) continue;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
}

bool ProcessRun::HasEnded(int rank, int* status) {
  if (waitpid(processes_[rank], status, WNOHANG) != processes_[rank]) return false;
  processes_[rank] = -1;
  return true;
}

void ProcessRun::ExpectExit(int rank) {
  int status = 0;
  EXPECT_TRUE(AwaitFor(kHangSeconds, [&] { return HasEnded(rank, &status); }))
      << "global_rank " << rank << " does not end";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "global_rank " << rank << ", wait status " << status;
}

void ProcessRun::ExpectNothingLeft() {
  EXPECT_TRUE(PrepareSocketDir(dir_.path).ok());
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path)) {
    ADD_FAILURE() << "left behind: " << entry.path();
  }
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_FALSE(absl::StrContains(entry.path().string(), "tessera")) << entry.path();
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

}  // namespace tessera
