// model.safetensors.index.json: no file name that is accepted leaves the folder.
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "storage/sharded_safetensors.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto index =
      tessera::ParseSafetensorsIndex(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!index.ok()) return 0;
  FUZZ_CHECK(!index->empty());
  for (const auto& [tensor, file] : *index) {
    FUZZ_CHECK(!absl::StrContains(file, '/') && !absl::StrContains(file, '\\'));
    FUZZ_CHECK(!absl::StrContains(file, '\0') && !absl::StartsWith(file, "."));
    FUZZ_CHECK(absl::EndsWith(file, ".safetensors"));
  }
  return 0;
}
