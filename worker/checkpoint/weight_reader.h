// Weights that others have trained, whatever their file format.
#ifndef TESSERA_WORKER_CHECKPOINT_WEIGHT_READER_H_
#define TESSERA_WORKER_CHECKPOINT_WEIGHT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/checkpoint/hf_config.h"
#include "worker/model/units.h"

namespace tessera {

// Opened and checked: every parameter of the config is there in the right shape. Immutable,
// thread-safe. Files are mapped, so that a slice costs what it holds.
class WeightReader {
 public:
  virtual ~WeightReader() = default;

  virtual const HfConfig& config() const = 0;
  // In forward order, with the names and layouts of worker/model/units.h.
  virtual const std::vector<ParameterSpec>& parameters() const = 0;
  // values[i] = element offset_elements + i of the parameter, row-major, converted to fp32.
  // NOT_FOUND: no such parameter. OUT_OF_RANGE: beyond its end. Both name file and parameter.
  virtual absl::Status ReadParameter(absl::string_view name, int64_t offset_elements,
                                     absl::Span<float> values) const = 0;
};

// Opens, and tells by the content what it is: a folder with config.json and safetensors; a
// .safetensors file with a config.json beside it; an llm.c checkpoint.
// The errors of the formats, naming file and tensor; UNIMPLEMENTED for tensors that are not F32,
// BF16 or F16.
absl::StatusOr<std::unique_ptr<WeightReader>> OpenWeights(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_WEIGHT_READER_H_
