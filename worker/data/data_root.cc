#include "worker/data/data_root.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The file with links resolved; an error if that is not under the root, or the root unreadable.
absl::StatusOr<std::string> Resolve(const std::string& data_root, const fs::path& file,
                                    const std::string& shown, const std::string& field) {
  std::error_code error;
  const fs::path root = fs::canonical(data_root, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data root ", data_root, " cannot be read: ", error.message()));
  }
  const fs::path resolved = fs::weakly_canonical(root / file, error);
  const auto [end, at] = std::mismatch(root.begin(), root.end(), resolved.begin(), resolved.end());
  if (!error && end == root.end()) return resolved.string();
  return InvalidField(field, shown, absl::StrCat("leaves the data root ", data_root));
}

}  // namespace

absl::StatusOr<std::string> ResolveInsideRoot(const std::string& data_root, const std::string& path,
                                              const std::string& field) {
  bool inside = !path.empty() && path[0] != '/' && path.find('\0') == std::string::npos;
  for (absl::string_view part : absl::StrSplit(path, '/')) inside = inside && part != "..";
  if (!inside) {
    return InvalidField(field, path, absl::StrCat("leaves the data root ", data_root));
  }
  return Resolve(data_root, path, path, field);
}

absl::Status CheckInsideRoot(const std::string& data_root, const std::string& file,
                             const std::string& field) {
  return Resolve(data_root, file, file, field).status();
}

}  // namespace tessera
