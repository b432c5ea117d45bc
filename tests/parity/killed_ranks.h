// Eight ranks as processes over mapped memory, one of which is killed at a chosen point.
#ifndef TESSERA_TESTS_PARITY_KILLED_RANKS_H_
#define TESSERA_TESTS_PARITY_KILLED_RANKS_H_

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "plan/mesh.h"
#include "proto/tessera/v1/spec.pb.h"
#include "worker/comm/communicator.h"
#include "worker/comm/process_world.h"
#include "worker/data/token_source.h"

namespace tessera {

constexpr int kRanks = 8, kAxes = 5;
// Only a hang lasts as long.
constexpr double kHangSeconds = 30;

// Polls until `done` or the limit; whether it is done.
bool AwaitFor(double seconds, const std::function<bool()>& done);

struct KillPoint {
  enum class Where { kBeforeOperation, kStartedOperation, kBeforeCompute, kInsideCompute };
  int global_rank = -1;  // -1: none
  Where where = Where::kBeforeOperation;
  int axis = 0;
  CollectiveKind kind = CollectiveKind::kBarrier;
  int64_t nth = 0;  // operation of the kind, or computation
  std::chrono::microseconds delay{0};
  bool is_death_seen = false;  // by the coordinator; else the first survivor's error tells it
};

struct SharedText {
  char text[2048];
  void Set(const std::string& value) { std::strncpy(text, value.c_str(), sizeof(text) - 1); }
};

// What the processes of a run share; zeros at first.
struct SharedRanks {
  pthread_barrier_t published;
  SharedText addresses[kRanks];
  std::atomic<int64_t> killed_ns;
  // From the coordinator: a question what is pending, by number, and the end of the job.
  std::atomic<int> question;
  std::atomic<bool> aborted;
  SharedText abort_reason;
  struct Rank {
    std::atomic<int> answered;  // question
    SharedText pending;         // empty: nothing
    std::atomic<int64_t> returned_ns;
    bool is_ok;
    SharedText error;
    // Of a whole run.
    CommunicatorStats stats[kAxes];
    int64_t polls;
  } ranks[kRanks];
};

// The calling process is the coordinator, and has no other threads. Processes that are still there
// are killed by the destructor.
class ProcessRun {
 public:
  ProcessRun(const v1::TrainingJobSpec& spec, const JobData& data, const KillPoint& point);
  ~ProcessRun();

  SharedRanks& shared() { return shared_; }

  // Whether the process has ended; *status as waitpid.
  bool HasEnded(int rank, int* status);
  void ExpectExit(int rank);
  // A killed process leaves its socket, which the next one of the host sweeps away.
  void ExpectNothingLeft();

 private:
  const TempDir dir_;
  const std::shared_ptr<void> memory_;
  SharedRanks& shared_;
  pid_t processes_[kRanks] = {};
};

}  // namespace tessera

#endif  // TESSERA_TESTS_PARITY_KILLED_RANKS_H_
