// What a transport hands to a communicator: a group whose members have met.
#ifndef TESSERA_WORKER_COMM_MEMBERSHIP_H_
#define TESSERA_WORKER_COMM_MEMBERSHIP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/device.h"
#include "worker/comm/board.h"
#include "worker/comm/communicator.h"
#include "worker/comm/message_link.h"

namespace tessera {

// A member's device arena, as this process sees it.
struct Region {
  char* base = nullptr;
  int64_t size_bytes = 0;
  std::shared_ptr<const void> mapping;  // keeps base valid; null where something else does
};

// Another member, reached through its memory or, where that cannot be mapped, through messages.
struct Peer {
  Region region;
  std::unique_ptr<MessageLink> link;
  std::unique_ptr<PeerWatch> watch;  // null in-process

  bool is_mapped() const { return link == nullptr; }
};

// Memory that members of one host share, and the board in it.
struct SharedBoard {
  Board board;
  std::shared_ptr<const void> mapping;
};

// Constant after the join, but for what the objects in it guard themselves.
struct Membership {
  GroupSpec spec;
  Device* device = nullptr;
  Region own;
  std::vector<Peer> peers;             // by group rank; the own entry is empty
  std::unique_ptr<SharedBoard> board;  // null where no other member is mapped

  int size() const { return static_cast<int>(spec.members.size()); }
  int self() const { return spec.group_rank; }
  bool IsMappedPeer(int member) const { return member != self() && peers[member].is_mapped(); }
  bool IsLinkedPeer(int member) const { return member != self() && !peers[member].is_mapped(); }
  bool all_mapped() const {
    for (int member = 0; member < size(); ++member) {
      if (IsLinkedPeer(member)) return false;
    }
    return true;
  }
};

// "workers/w1 (group rank 1, global rank 5)"
inline std::string MemberName(const GroupSpec& spec, int member) {
  return absl::StrCat(spec.members[member].worker, " (group rank ", member, ", global rank ",
                      spec.members[member].global_rank, ")");
}

// The status of a connection to that member, as UNAVAILABLE with its name; other codes pass.
inline absl::Status GoneError(const GroupSpec& spec, int member, const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(
      absl::StrCat(MemberName(spec, member), " is gone: ", status.message()));
}

// "group dp of job 7f3a, epoch 2"
inline std::string GroupName(const GroupSpec& spec) {
  return absl::StrCat("group ", spec.name, " of job ", spec.job_uid, ", epoch ", spec.epoch);
}

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_MEMBERSHIP_H_
