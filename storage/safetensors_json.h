// The JSON header of a safetensors file, as it stands there. Private to the reader, which holds it
// against the file.
#ifndef TESSERA_STORAGE_SAFETENSORS_JSON_H_
#define TESSERA_STORAGE_SAFETENSORS_JSON_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/safetensors.h"

namespace tessera {

struct SafetensorsJsonEntry {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // data_offsets, unchecked
  uint64_t end = 0;
};

struct SafetensorsJson {
  std::vector<SafetensorsJsonEntry> entries;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

// {NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {...}}.
// Other members of an entry are ignored, as the format's own library does; all three are needed.
// INVALID_ARGUMENT names the tensor and what is wrong with it.
absl::StatusOr<SafetensorsJson> ParseSafetensorsJson(absl::string_view text);

}  // namespace tessera

#endif  // TESSERA_STORAGE_SAFETENSORS_JSON_H_
