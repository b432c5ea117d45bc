#include "worker/comm/in_process_transport.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "worker/comm/group_communicator.h"
#include "worker/comm/join.h"

namespace tessera {

// One group's join in progress.
struct InProcessHub::Meeting {
  std::vector<Region> regions;       // by group rank
  std::vector<std::string> arrived;  // the addresses, empty: not yet
  int num_arrived = 0;
  std::shared_ptr<void> memory;
  absl::Status failure;
  std::string job_uid;
  int64_t epoch = 0;
};

namespace {

std::shared_ptr<void> ZeroedPages(int64_t size_bytes) {
  constexpr int64_t kPage = 4096;
  void* memory = std::aligned_alloc(kPage, size_bytes);
  std::memset(memory, 0, size_bytes);
  return std::shared_ptr<void>(memory, std::free);
}

}  // namespace

class InProcessTransport : public Transport {
 public:
  InProcessTransport(InProcessHub& hub, Device& device, std::string address)
      : hub_(hub), device_(device), address_(std::move(address)) {}

  std::string address() const override { return address_; }
  std::string host_id() const override { return "in-process"; }
  absl::StatusOr<std::unique_ptr<Communicator>> Join(const GroupSpec& spec) override {
    absl::StatusOr<Membership> membership = hub_.Meet(spec, device_, address_);
    if (!membership.ok()) return JoinError(spec, membership.status());
    return std::make_unique<GroupCommunicator>(*std::move(membership));
  }
  void AbortJoins(absl::string_view job_uid, int64_t epoch, const absl::Status& reason) override {
    hub_.AbortJoins(job_uid, epoch, reason, address_);
  }

 private:
  InProcessHub& hub_;
  Device& device_;
  const std::string address_;
};

InProcessHub::InProcessHub() = default;
InProcessHub::~InProcessHub() = default;

std::unique_ptr<Transport> InProcessHub::CreateTransport(Device& device) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::make_unique<InProcessTransport>(*this, device,
                                              absl::StrCat("in-process/", next_transport_++));
}

absl::StatusOr<Membership> InProcessHub::Meet(const GroupSpec& spec, Device& device,
                                              const std::string& address) {
  if (absl::Status status = CheckSpec(spec, address); !status.ok()) return status;
  const int size = static_cast<int>(spec.members.size());
  const std::string key = GroupKey(spec);
  const Region own{reinterpret_cast<char*>(device.base_address()), device.arena().capacity_bytes(),
                   nullptr};
  std::unique_lock<std::mutex> lock(mutex_);
  if (absl::Status aborted = aborted_[address].Check(spec); !aborted.ok()) return aborted;
  std::shared_ptr<Meeting>& slot = meetings_[key];
  if (slot == nullptr) {
    slot = std::make_shared<Meeting>();
    slot->regions.resize(size);
    slot->arrived.resize(size);
    slot->memory = ZeroedPages(Board::SizeBytes(size));
    slot->job_uid = spec.job_uid;
    slot->epoch = spec.epoch;
  }
  const std::shared_ptr<Meeting> meeting = slot;
  if (static_cast<int>(meeting->arrived.size()) != size ||
      !meeting->arrived[spec.group_rank].empty()) {
    return absl::InvalidArgumentError("members disagree on the group, or one joins twice");
  }
  meeting->regions[spec.group_rank] = own;
  meeting->arrived[spec.group_rank] = address;
  if (++meeting->num_arrived == size) {
    meetings_.erase(key);  // the next join of this name is another group
    changed_.notify_all();
  }
  const auto limit = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(spec.timeout);
  while (meeting->num_arrived < size && meeting->failure.ok()) {
    if (changed_.wait_until(lock, limit) == std::cv_status::no_timeout) continue;
    if (meeting->num_arrived == size || !meeting->failure.ok()) break;
    std::vector<std::string> missing;
    for (int member = 0; member < size; ++member) {
      if (meeting->arrived[member].empty()) missing.push_back(MemberName(spec, member));
    }
    meeting->arrived[spec.group_rank].clear();
    if (--meeting->num_arrived == 0) meetings_.erase(key);
    return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(spec.timeout),
                                                    " for ", absl::StrJoin(missing, ", ")));
  }
  if (!meeting->failure.ok()) {
    meetings_.erase(key);
    return meeting->failure;
  }
  Membership membership;
  membership.spec = spec;
  membership.device = &device;
  membership.own = own;
  membership.peers.resize(size);
  for (int member = 0; member < size; ++member) {
    if (member != spec.group_rank) membership.peers[member].region = meeting->regions[member];
  }
  if (size > 1) {
    membership.board.reset(new SharedBoard{Board(meeting->memory.get(), size), meeting->memory});
  }
  return membership;
}

void InProcessHub::AbortJoins(absl::string_view job_uid, int64_t epoch, const absl::Status& reason,
                              const std::string& address) {
  std::lock_guard<std::mutex> lock(mutex_);
  aborted_[address].Add(job_uid, epoch, reason);
  for (auto& [key, meeting] : meetings_) {
    if (meeting->job_uid != job_uid || meeting->epoch > epoch) continue;
    for (const std::string& each : meeting->arrived) {
      if (each == address) meeting->failure = reason;
    }
  }
  changed_.notify_all();
}

}  // namespace tessera
