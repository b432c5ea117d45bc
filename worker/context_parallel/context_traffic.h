// What context attention sends, and which memory it takes for it, before anything runs. Pure.
#ifndef TESSERA_WORKER_CONTEXT_PARALLEL_CONTEXT_TRAFFIC_H_
#define TESSERA_WORKER_CONTEXT_PARALLEL_CONTEXT_TRAFFIC_H_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/dtype.h"
#include "worker/comm/communicator.h"
#include "worker/context_parallel/context_attention.h"

namespace tessera {

// Calls and bytes of one rank by kind of collective, as its communicator counts them, of one
// Forward and of one Backward. local as for CreateContextAttention, which would accept it. With
// M = B*T/cp local rows, s bytes of an element, K = 2*G*H, n = N/cp and g = max(G/cp, 1) heads:
//   ring        forward: cp-1 sends and receives of M*K*s;
//               backward: those, and cp-1 of M*K*4
//   all_gather  forward: all_gather of cp*M*K*s;
//               backward: that, and reduce_scatter of cp*M*K*4
//   ulysses     forward: all_to_all of cp*M*(n+2g)*H*s and cp*M*n*H*s;
//               backward: of cp*M*(3n+2g)*H*s, and cp*M*(n+2g)*H*s or, where cp > G,
//               cp*M*n*H*s and cp*M*2*g*H*4
// Nothing in a group of one.
CommunicatorStats PredictContextForward(ContextParallelKind kind, const AttentionShape& local,
                                        DType dtype, int cp_size);
CommunicatorStats PredictContextBackward(ContextParallelKind kind, const AttentionShape& local,
                                         DType dtype, int cp_size);

// Sum of a stats' calls or bytes.
int64_t TotalCalls(const CommunicatorStats& stats);
int64_t TotalBytes(const CommunicatorStats& stats);

// Device memory of category `communication` that CreateContextAttention takes. The workspace comes
// on top, AttentionWorkspaceBytes of ContextWorkspaceShape.
int64_t PredictContextBufferBytes(ContextParallelKind kind, const AttentionShape& local,
                                  DType dtype, bool backward, int cp_size);
AttentionShape ContextWorkspaceShape(ContextParallelKind kind, const AttentionShape& local,
                                     int cp_size);

}  // namespace tessera

#endif  // TESSERA_WORKER_CONTEXT_PARALLEL_CONTEXT_TRAFFIC_H_
