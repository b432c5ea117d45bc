// Memory that the system backs with huge pages. A disk's request names each piece of memory that it
// reads or writes, and many pages are many pieces: direct IO of 4 MiB from huge pages reaches
// several times the bandwidth of that from small ones (storage/README.md has the figures).
#ifndef TESSERA_KERNELS_HUGE_PAGES_H_
#define TESSERA_KERNELS_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstdint>

namespace tessera {

// What such memory is aligned to. Larger than this on some processors; then pages stay small.
constexpr int64_t kHugePageBytes = 2 << 20;

// Asks for them where they are not given to all; before the memory is first touched, or it stays as
// it is. Where the system has none ("never" in /sys/kernel/mm/transparent_hugepage/enabled) the
// memory is as good, and direct IO slower.
// REQUIRES: memory starts at a page.
inline void PreferHugePages(void* memory, int64_t size_bytes) {
  (void)madvise(memory, size_bytes, MADV_HUGEPAGE);
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_HUGE_PAGES_H_
