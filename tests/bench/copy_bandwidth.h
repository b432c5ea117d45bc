// What the machine's memory can do: the measure beside which bandwidths are printed.
#ifndef TESSERA_TESTS_BENCH_COPY_BANDWIDTH_H_
#define TESSERA_TESTS_BENCH_COPY_BANDWIDTH_H_

namespace tessera {

struct CopyBandwidth {
  double memcpy_gbps = 0;  // the C library's
  double stream_gbps = 0;  // with non-temporal stores
  double best_gbps() const { return memcpy_gbps > stream_gbps ? memcpy_gbps : stream_gbps; }
};

// Bytes read plus bytes written per second, 10^9, while `processes` processes each copy 64 MiB from
// one buffer to another, all at once; median of several rounds.
CopyBandwidth MeasureCopyBandwidth(int processes);

}  // namespace tessera

#endif  // TESSERA_TESTS_BENCH_COPY_BANDWIDTH_H_
