// Where the members of a group find each other, pair by pair: the one of lower group rank listens,
// the other connects and says which group it joins and as whom. README.md has the protocol.
#ifndef TESSERA_WORKER_COMM_RENDEZVOUS_H_
#define TESSERA_WORKER_COMM_RENDEZVOUS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/comm/communicator.h"
#include "worker/comm/endpoint.h"
#include "worker/comm/join.h"
#include "worker/comm/socket.h"

namespace tessera {

class Meeting;

// Listens for the life of a transport, in a thread of its own. Thread-safe. A visitor is let in
// only to a group that this process is itself joining, as the member whose instance it names; on
// the Unix socket only with this process's uid. Outlives its meetings.
class Rendezvous {
 public:
  // Sockets may be closed (-1): not listened on.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Create(UniqueFd unix_listener,
                                                            UniqueFd tcp_listener,
                                                            const std::string& instance);
  ~Rendezvous();

  // Opens the door to the members of one group. endpoints: of all members. INVALID_ARGUMENT where
  // this process is already joining the group; the reason of AbortJoins where that came first.
  absl::StatusOr<std::unique_ptr<Meeting>> Open(const GroupSpec& spec,
                                                const std::vector<Endpoint>& endpoints);
  void AbortJoins(absl::string_view job_uid, int64_t epoch, const absl::Status& reason);

 private:
  friend class Meeting;
  // Somebody at the door who has not yet said hello.
  struct Stranger {
    UniqueFd fd;
    bool is_unix = false;
    FrameReader reader;
    std::chrono::steady_clock::time_point deadline;
  };

  Rendezvous(UniqueFd unix_listener, UniqueFd tcp_listener, UniqueFd wake, std::string instance);
  void Listen();
  void Accept(const UniqueFd& listener, bool is_unix);
  // OK where the visitor was handed to its meeting; else what it is told.
  absl::Status LetIn(Stranger& stranger, const Frame& hello);

  const UniqueFd unix_listener_;
  const UniqueFd tcp_listener_;
  const UniqueFd wake_;  // eventfd: the thread ends
  const std::string instance_;
  std::list<Stranger> strangers_;  // the thread's own
  std::mutex mutex_;
  std::map<std::string, Meeting*> meetings_ ABSL_GUARDED_BY(mutex_);  // by GroupKey
  AbortedJoins aborted_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: starts with everything above in place
};

// One group's join in progress in this process. Used by the joining thread; ends with it.
class Meeting {
 public:
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  struct Visitor {
    int member = 0;
    UniqueFd fd;
  };
  // The next member of higher rank at the door. DEADLINE_EXCEEDED, CANCELLED.
  absl::StatusOr<Visitor> NextVisitor();
  // Connects to a member of lower rank, as often as it takes until that one lets this one in;
  // *welcome is what it said. DEADLINE_EXCEEDED, CANCELLED, FAILED_PRECONDITION where it refuses.
  absl::StatusOr<UniqueFd> Visit(int member, bool over_unix, const std::string& socket_dir,
                                 Frame* welcome);

  // Bounds all waiting of this join.
  Patience patience() const { return {deadline_, cancel_.get()}; }
  // The reason of AbortJoins, or OK.
  absl::Status cancelled() const;

 private:
  friend class Rendezvous;
  Meeting(Rendezvous& rendezvous, const GroupSpec& spec, std::vector<Endpoint> endpoints,
          UniqueFd cancel);
  void Cancel(const absl::Status& reason);

  Rendezvous& rendezvous_;
  const GroupSpec& spec_;
  const std::vector<Endpoint> endpoints_;
  const std::chrono::steady_clock::time_point deadline_;
  const UniqueFd cancel_;  // eventfd, readable once cancelled
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Visitor> visitors_ ABSL_GUARDED_BY(mutex_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_RENDEZVOUS_H_
