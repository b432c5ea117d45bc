// What a fuzz target holds besides not crashing.
#ifndef TESSERA_TESTS_FUZZ_CHECK_H_
#define TESSERA_TESTS_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Ends the process, which a fuzzer takes for a find.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

#endif  // TESSERA_TESTS_FUZZ_CHECK_H_
