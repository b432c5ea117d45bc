// A peer for small all_reduce: the same movement of data between processes with nothing around it.
#ifndef TESSERA_TESTS_BENCH_BARE_ALL_REDUCE_H_
#define TESSERA_TESTS_BENCH_BARE_ALL_REDUCE_H_

#include <cstdint>

namespace tessera {

// Median microseconds of an all_reduce of `bytes` of fp32 between processes that do nothing but
// meet (a counter in shared memory: a few looks, then sched_yield), sum their block of everybody's
// memory into everybody's memory, and meet again. No postings, no checks, no time-outs, no aborts,
// no sleep. 0 where a process fails.
double BareAllReduceUs(int ranks, int64_t bytes);

}  // namespace tessera

#endif  // TESSERA_TESTS_BENCH_BARE_ALL_REDUCE_H_
