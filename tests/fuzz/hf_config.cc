// config.json. What is accepted fits together, and is read again as it was written.
#include "worker/checkpoint/hf_config.h"

#include <cstdint>

#include "absl/strings/string_view.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config =
      tessera::ParseHfConfig(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!config.ok()) return 0;
  FUZZ_CHECK(tessera::CheckModelConfig(config->model).ok());
  const auto text = tessera::FormatHfConfig(*config, "float32");
  FUZZ_CHECK(text.ok());
  const auto again = tessera::ParseHfConfig(*text);
  FUZZ_CHECK(again.ok() && *again == *config);
  return 0;
}
