#include "worker/context_parallel/context_traffic.h"

#include <algorithm>

#include "kernels/arena.h"
#include "worker/context_parallel/ulysses_attention.h"
#include "worker/context_parallel/zigzag.h"

namespace tessera {
namespace {

constexpr int64_t kFloatBytes = DTypeSizeBytes(DType::kFloat32);

// Rows, and columns of what is sent.
struct Sizes {
  Sizes(const AttentionShape& local, int cp_size)
      : rows(local.batch * local.time),
        all_rows(cp_size * rows),
        q_columns(local.heads * local.head_size),
        kv_columns(2 * local.kv_heads * local.head_size) {}
  int64_t rows, all_rows, q_columns, kv_columns;
};

// The same of one rank's heads under ulysses.
struct HeadColumns {
  HeadColumns(const AttentionShape& local, int cp_size)
      : split(local, cp_size),
        q(split.heads * local.head_size),
        kv(2 * split.kv_heads * local.head_size) {}
  const UlyssesHeads split;
  int64_t q, kv;
};

void Count(CollectiveKind kind, int64_t calls, int64_t bytes_of_a_call, CommunicatorStats& stats) {
  stats[static_cast<int>(kind)].calls += calls;
  stats[static_cast<int>(kind)].bytes += calls * bytes_of_a_call;
}

void CountExchanges(int64_t calls, int64_t bytes, CommunicatorStats& stats) {
  Count(CollectiveKind::kSend, calls, bytes, stats);
  Count(CollectiveKind::kRecv, calls, bytes, stats);
}

// K and V as they are sent in both directions.
void CountKeys(ContextParallelKind kind, const AttentionShape& local, DType dtype, int cp_size,
               CommunicatorStats& stats) {
  const Sizes s(local, cp_size);
  const int64_t element = DTypeSizeBytes(dtype);
  if (kind == ContextParallelKind::kRing) {
    CountExchanges(cp_size - 1, s.rows * s.kv_columns * element, stats);
  } else {
    Count(CollectiveKind::kAllGather, 1, s.all_rows * s.kv_columns * element, stats);
  }
}

int64_t Allocated(int64_t bytes) {
  return (bytes + Arena::kAlignmentBytes - 1) / Arena::kAlignmentBytes * Arena::kAlignmentBytes;
}

}  // namespace

CommunicatorStats PredictContextForward(ContextParallelKind kind, const AttentionShape& local,
                                        DType dtype, int cp_size) {
  CommunicatorStats stats{};
  if (cp_size == 1) return stats;
  if (kind != ContextParallelKind::kUlysses) {
    CountKeys(kind, local, dtype, cp_size, stats);
    return stats;
  }
  const Sizes s(local, cp_size);
  const HeadColumns columns(local, cp_size);
  const int64_t element = DTypeSizeBytes(dtype);
  Count(CollectiveKind::kAllToAll, 1, s.all_rows * (columns.q + columns.kv) * element, stats);
  Count(CollectiveKind::kAllToAll, 1, s.all_rows * columns.q * element, stats);
  return stats;
}

CommunicatorStats PredictContextBackward(ContextParallelKind kind, const AttentionShape& local,
                                         DType dtype, int cp_size) {
  CommunicatorStats stats{};
  if (cp_size == 1) return stats;
  const Sizes s(local, cp_size);
  const int64_t element = DTypeSizeBytes(dtype);
  switch (kind) {
    case ContextParallelKind::kRing:
      CountKeys(kind, local, dtype, cp_size, stats);
      CountExchanges(cp_size - 1, s.rows * s.kv_columns * kFloatBytes, stats);
      break;
    case ContextParallelKind::kAllGather:
      CountKeys(kind, local, dtype, cp_size, stats);
      Count(CollectiveKind::kReduceScatter, 1, s.all_rows * s.kv_columns * kFloatBytes, stats);
      break;
    case ContextParallelKind::kUlysses: {
      const HeadColumns columns(local, cp_size);
      const auto count = [&](int64_t row_bytes) {
        Count(CollectiveKind::kAllToAll, 1, s.all_rows * row_bytes, stats);
      };
      count((3 * columns.q + columns.kv) * element);
      if (columns.split.replicas == 1) {
        count((columns.q + columns.kv) * element);
      } else {
        count(columns.q * element);
        count(columns.kv * kFloatBytes);
      }
      break;
    }
  }
  return stats;
}

int64_t TotalCalls(const CommunicatorStats& stats) {
  int64_t calls = 0;
  for (const CollectiveCount& count : stats) calls += count.calls;
  return calls;
}

int64_t TotalBytes(const CommunicatorStats& stats) {
  int64_t bytes = 0;
  for (const CollectiveCount& count : stats) bytes += count.bytes;
  return bytes;
}

int64_t PredictContextBufferBytes(ContextParallelKind kind, const AttentionShape& local,
                                  DType dtype, bool backward, int cp_size) {
  if (cp_size == 1) return 0;
  const Sizes s(local, cp_size);
  const int64_t element = DTypeSizeBytes(dtype);
  switch (kind) {
    case ContextParallelKind::kRing: {
      const int64_t queries = Allocated(s.rows * s.q_columns * kFloatBytes);
      const int64_t d_keys = Allocated(s.rows * s.kv_columns * kFloatBytes);
      return 2 * Allocated(s.rows * s.kv_columns * element) +
             (dtype == DType::kFloat32 ? 1 : 2) * queries +
             Allocated(s.rows * local.heads * kFloatBytes) +
             (backward ? (cp_size > 2 ? 4 : 3) * d_keys : 0);
    }
    case ContextParallelKind::kAllGather:
      return 2 * Allocated(s.all_rows * s.kv_columns * element) +
             (backward ? 2 * Allocated(s.all_rows * s.kv_columns * kFloatBytes) : 0);
    case ContextParallelKind::kUlysses: {
      const HeadColumns columns(local, cp_size);
      const bool replicated = backward && columns.split.replicas > 1;
      const int64_t row_bytes = ((backward ? 3 : 1) * columns.q + columns.kv) * element;
      const int64_t d_kv_bytes = replicated ? columns.kv * kFloatBytes : 0;
      return 2 * Allocated(s.all_rows * std::max(row_bytes, d_kv_bytes)) +
             Allocated(s.all_rows * row_bytes) +
             Allocated(s.all_rows * (columns.q + (backward && !replicated ? columns.kv : 0)) *
                       element) +
             Allocated(s.all_rows * d_kv_bytes);
    }
  }
  return 0;
}

AttentionShape ContextWorkspaceShape(ContextParallelKind kind, const AttentionShape& local,
                                     int cp_size) {
  AttentionShape shape = local;
  if (cp_size == 1 || kind == ContextParallelKind::kRing) return shape;
  const int64_t time = local.time * cp_size;
  if (kind == ContextParallelKind::kUlysses) {
    shape.time = time;
    return shape;
  }
  shape.time = local.time / kZigzagHalves;
  shape.past = time - shape.time;
  return shape;
}

}  // namespace tessera
