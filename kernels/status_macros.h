// Early return of a Status.
#ifndef TESSERA_KERNELS_STATUS_MACROS_H_
#define TESSERA_KERNELS_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the Status of `expression` from the enclosing function unless it is OK.
#define TESSERA_RETURN_IF_ERROR(expression)                                 \
  do {                                                                      \
    if (absl::Status tessera_status = (expression); !tessera_status.ok()) { \
      return tessera_status;                                                \
    }                                                                       \
  } while (false)

#define TESSERA_STATUS_CONCAT_INNER(a, b) a##b
#define TESSERA_STATUS_CONCAT(a, b) TESSERA_STATUS_CONCAT_INNER(a, b)

// target = *expression, or returns its Status. target may declare a variable.
#define TESSERA_ASSIGN_OR_RETURN(target, expression)                \
  auto TESSERA_STATUS_CONCAT(tessera_or_, __LINE__) = (expression); \
  if (!TESSERA_STATUS_CONCAT(tessera_or_, __LINE__).ok()) {         \
    return TESSERA_STATUS_CONCAT(tessera_or_, __LINE__).status();   \
  }                                                                 \
  target = *std::move(TESSERA_STATUS_CONCAT(tessera_or_, __LINE__))

#endif  // TESSERA_KERNELS_STATUS_MACROS_H_
