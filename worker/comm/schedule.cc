#include "worker/comm/schedule.h"

namespace tessera {

ElementRange Outgoing(CollectiveKind kind, int64_t num_elements, int group_size, int root, int from,
                      int to) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return Block(num_elements, group_size, to);
    case CollectiveKind::kAllGather:
      return {0, num_elements};
    case CollectiveKind::kBroadcast:
      if (from == root) return {0, num_elements};
      return {};
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

ElementRange Landing(CollectiveKind kind, int64_t num_elements, int group_size, int root, int from,
                     int) {
  switch (kind) {
    case CollectiveKind::kAllToAll:
      return Block(num_elements, group_size, from);
    case CollectiveKind::kAllGather:
      return {from * num_elements, num_elements};
    case CollectiveKind::kBroadcast:
      if (from == root) return {0, num_elements};
      return {};
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

}  // namespace tessera
