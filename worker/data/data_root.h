// Paths under a worker's data root.
#ifndef TESSERA_WORKER_DATA_DATA_ROOT_H_
#define TESSERA_WORKER_DATA_DATA_ROOT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// data_root/path with all symbolic links resolved. INVALID_ARGUMENT under `field` if the path is
// empty, absolute, has a "..", or leaves the root through a link; FAILED_PRECONDITION if the root
// cannot be read. The file need not exist.
absl::StatusOr<std::string> ResolveInsideRoot(const std::string& data_root, const std::string& path,
                                              const std::string& field);

// The same error for a file, found in a resolved folder, that is itself a link out of the root.
absl::Status CheckInsideRoot(const std::string& data_root, const std::string& file,
                             const std::string& field);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_DATA_ROOT_H_
