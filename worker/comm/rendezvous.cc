#include "worker/comm/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker/comm/join.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kVersion[] = "tessera-comm/1";
// What a visitor is told. After kWelcome follows what the caller of NextVisitor sends.
constexpr char kLater[] = "later";
constexpr char kRefused[] = "refused";

constexpr milliseconds kHelloLimit(5000);
constexpr size_t kMaxStrangers = 512;
constexpr milliseconds kFirstRetry(2), kLongestRetry(20);

// Hello: version, job uid, epoch, group name, sender's group rank, sender's and receiver's
// instance.
constexpr size_t kHelloFields = 7;

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Create(UniqueFd unix_listener,
                                                               UniqueFd tcp_listener,
                                                               const std::string& instance) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return SocketError("eventfd");
  return std::unique_ptr<Rendezvous>(
      new Rendezvous(std::move(unix_listener), std::move(tcp_listener), std::move(wake), instance));
}

Rendezvous::Rendezvous(UniqueFd unix_listener, UniqueFd tcp_listener, UniqueFd wake,
                       std::string instance)
    : unix_listener_(std::move(unix_listener)),
      tcp_listener_(std::move(tcp_listener)),
      wake_(std::move(wake)),
      instance_(std::move(instance)),
      thread_([this] { Listen(); }) {}

Rendezvous::~Rendezvous() {
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Rendezvous::Listen() {
  while (true) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0},
                                  {unix_listener_.get(), POLLIN, 0},
                                  {tcp_listener_.get(), POLLIN, 0}};
    for (const Stranger& stranger : strangers_) polled.push_back({stranger.fd.get(), POLLIN, 0});
    const int limit_ms = strangers_.empty() ? -1 : static_cast<int>(kHelloLimit.count());
    if (poll(polled.data(), polled.size(), limit_ms) < 0) continue;
    if (polled[0].revents != 0) return;
    size_t i = 3;
    for (auto it = strangers_.begin(); it != strangers_.end(); ++i) {
      absl::StatusOr<bool> complete = false;
      if (polled[i].revents != 0) complete = it->reader.Read(it->fd.get());
      if (complete.ok() && *complete) {
        const absl::Status verdict = LetIn(*it, it->reader.Take());
        if (!verdict.ok()) {
          // A visitor that does not read its answer does not get one.
          SendFrame(
              it->fd.get(),
              absl::IsNotFound(verdict) ? kLater : absl::StrCat(kRefused, "\n", verdict.message()),
              {}, Patience{})
              .IgnoreError();
        }
      }
      const bool is_over = !complete.ok() || *complete || steady_clock::now() >= it->deadline;
      it = is_over ? strangers_.erase(it) : std::next(it);
    }
    if (polled[1].revents != 0) Accept(unix_listener_, true);
    if (polled[2].revents != 0) Accept(tcp_listener_, false);
  }
}

void Rendezvous::Accept(const UniqueFd& listener, bool is_unix) {
  UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.is_open() || strangers_.size() >= kMaxStrangers) return;
  if (is_unix && !CheckPeerUid(fd.get()).ok()) return;
  strangers_.push_back({std::move(fd), is_unix, {}, steady_clock::now() + kHelloLimit});
}

absl::Status Rendezvous::LetIn(Stranger& stranger, const Frame& hello) {
  const std::vector<std::string> fields = absl::StrSplit(hello.text, '\n');
  int member = 0;
  int64_t epoch = 0;
  if (fields.size() != kHelloFields || fields[0] != kVersion ||
      !absl::SimpleAtoi(fields[2], &epoch) || !absl::SimpleAtoi(fields[4], &member)) {
    return absl::InvalidArgumentError(absl::StrCat("this is not a hello of ", kVersion));
  }
  if (fields[6] != instance_) return absl::InvalidArgumentError("another process has this address");
  GroupSpec named;
  named.job_uid = fields[1];
  named.epoch = epoch;
  named.name = fields[3];
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = meetings_.find(GroupKey(named));
  if (it == meetings_.end()) return absl::NotFoundError("not joining this group now");
  Meeting& meeting = *it->second;
  const auto size = static_cast<int>(meeting.endpoints_.size());
  const int self = meeting.spec_.group_rank;
  if (member <= self || member >= size || meeting.endpoints_[member].instance != fields[5]) {
    return absl::PermissionDeniedError("this process is not that member of the group");
  }
  const bool shares = meeting.endpoints_[member].host_id == meeting.endpoints_[self].host_id;
  if (shares != stranger.is_unix) return absl::PermissionDeniedError("this is the wrong door");
  std::lock_guard<std::mutex> meeting_lock(meeting.mutex_);
  meeting.visitors_.push_back({member, std::move(stranger.fd)});
  meeting.changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Meeting>> Rendezvous::Open(const GroupSpec& spec,
                                                          const std::vector<Endpoint>& endpoints) {
  UniqueFd cancel(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cancel.is_open()) return SocketError("eventfd");
  std::unique_ptr<Meeting> meeting(new Meeting(*this, spec, endpoints, std::move(cancel)));
  std::unique_lock<std::mutex> lock(mutex_);
  if (absl::Status aborted = aborted_.Check(spec); !aborted.ok()) {
    lock.unlock();  // ~Meeting takes it
    return aborted;
  }
  if (meetings_.emplace(GroupKey(spec), meeting.get()).second) return meeting;
  lock.unlock();
  return absl::InvalidArgumentError("this process is already joining the group");
}

void Rendezvous::AbortJoins(absl::string_view job_uid, int64_t epoch, const absl::Status& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  aborted_.Add(job_uid, epoch, reason);
  for (auto& [key, meeting] : meetings_) {
    if (meeting->spec_.job_uid == job_uid && meeting->spec_.epoch <= epoch) meeting->Cancel(reason);
  }
}

Meeting::Meeting(Rendezvous& rendezvous, const GroupSpec& spec, std::vector<Endpoint> endpoints,
                 UniqueFd cancel)
    : rendezvous_(rendezvous),
      spec_(spec),
      endpoints_(std::move(endpoints)),
      deadline_(steady_clock::now() +
                milliseconds(std::min<int64_t>(absl::ToInt64Milliseconds(spec.timeout),
                                               int64_t{1000} * 3600 * 24 * 365))),
      cancel_(std::move(cancel)) {}

Meeting::~Meeting() {
  std::lock_guard<std::mutex> lock(rendezvous_.mutex_);
  const auto it = rendezvous_.meetings_.find(GroupKey(spec_));
  if (it != rendezvous_.meetings_.end() && it->second == this) rendezvous_.meetings_.erase(it);
}

void Meeting::Cancel(const absl::Status& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!cancelled_.ok()) return;
  cancelled_ = reason.ok() ? absl::AbortedError("aborted") : reason;
  eventfd_write(cancel_.get(), 1);
  changed_.notify_all();
}

absl::Status Meeting::cancelled() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cancelled_;
}

absl::StatusOr<Meeting::Visitor> Meeting::NextVisitor() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (visitors_.empty() && cancelled_.ok()) {
    if (changed_.wait_until(lock, deadline_) == std::cv_status::timeout) {
      return absl::DeadlineExceededError("nobody came");
    }
  }
  if (!cancelled_.ok()) return absl::CancelledError("aborted");
  Visitor visitor = std::move(visitors_.front());
  visitors_.pop_front();
  return visitor;
}

absl::StatusOr<UniqueFd> Meeting::Visit(int member, bool over_unix, const std::string& socket_dir,
                                        Frame* welcome) {
  const Endpoint& endpoint = endpoints_[member];
  const std::string hello = absl::StrJoin(
      {std::string(kVersion), spec_.job_uid, absl::StrCat(spec_.epoch), spec_.name,
       absl::StrCat(spec_.group_rank), endpoints_[spec_.group_rank].instance, endpoint.instance},
      "\n");
  for (milliseconds retry = kFirstRetry;; retry = std::min(kLongestRetry, 2 * retry)) {
    absl::StatusOr<UniqueFd> fd =
        over_unix ? ConnectUnix(absl::StrCat(socket_dir, "/", endpoint.socket_name), patience())
                  : ConnectTcp(endpoint.tcp_ip, endpoint.tcp_port, patience());
    absl::Status status = fd.status();
    if (status.ok() && over_unix) status = CheckPeerUid(fd->get());
    if (absl::IsPermissionDenied(status)) return status;
    if (status.ok()) status = SendFrame(fd->get(), hello, {}, patience());
    if (status.ok()) {
      absl::StatusOr<Frame> answer = RecvFrame(fd->get(), patience());
      status = answer.status();
      if (status.ok() && absl::StartsWith(answer->text, kRefused)) {
        return absl::FailedPreconditionError(answer->text);
      }
      if (status.ok() && answer->text != kLater) {
        *welcome = *std::move(answer);
        return *std::move(fd);
      }
    }
    // UNAVAILABLE: it has not started, or is starting again. The pause ends early when aborted.
    if (!status.ok() && !absl::IsUnavailable(status)) return status;
    const Patience pause{std::min(deadline_, steady_clock::now() + retry), cancel_.get()};
    status = WaitFor(-1, 0, pause);
    if (absl::IsCancelled(status) || steady_clock::now() >= deadline_) return status;
  }
}

}  // namespace tessera
