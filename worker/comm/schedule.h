// The schedule of every collective, as pure functions: which elements of a member's input go to
// which other member, and where they land. Every block goes straight to the member that needs it.
#ifndef TESSERA_WORKER_COMM_SCHEDULE_H_
#define TESSERA_WORKER_COMM_SCHEDULE_H_

#include <algorithm>
#include <cstdint>

#include "worker/comm/communicator.h"

namespace tessera {

// Elements [begin, begin + count) of a tensor.
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Block `index` of num_elements over group_size members, as communicator.h defines it.
inline ElementRange Block(int64_t num_elements, int group_size, int index) {
  const int64_t size = (num_elements + group_size - 1) / group_size;
  const int64_t begin = std::min(num_elements, size * index);
  return {begin, std::min(num_elements, begin + size) - begin};
}

// What member `from` hands to member `to` out of its input of num_elements. For all_reduce and
// reduce_scatter these are the summands of `to`'s block.
ElementRange Outgoing(CollectiveKind kind, int64_t num_elements, int group_size, int root, int from,
                      int to);

// Where in `to`'s output the range Outgoing(..., from, to) belongs; nowhere (0, 0) for reductions.
ElementRange Landing(CollectiveKind kind, int64_t num_elements, int group_size, int root, int from,
                     int to);

// all_reduce and reduce_scatter: what arrives is summed.
inline bool IsReduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}

}  // namespace tessera

#endif  // TESSERA_WORKER_COMM_SCHEDULE_H_
