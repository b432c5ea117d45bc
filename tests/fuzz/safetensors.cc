// Whole safetensors files. What is accepted tiles the data, and survives being written and read.
#include "storage/safetensors.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "storage/safetensors_writer.h"
#include "tests/fuzz/check.h"

using tessera::SafetensorsTensor;

namespace {

bool SameTensors(const std::vector<SafetensorsTensor>& a, const std::vector<SafetensorsTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].dtype != b[i].dtype || a[i].shape != b[i].shape ||
        a[i].begin_bytes != b[i].begin_bytes || a[i].end_bytes != b[i].end_bytes) {
      return false;
    }
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = tessera::ParseSafetensors({data, size});
  if (!header.ok()) return 0;
  int64_t end = 0;
  std::vector<tessera::SafetensorsSpec> specs;
  for (const SafetensorsTensor& tensor : header->tensors) {
    FUZZ_CHECK(tensor.begin_bytes == end && tensor.end_bytes >= end);
    end = tensor.end_bytes;
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  FUZZ_CHECK(header->data_offset_bytes + end == static_cast<int64_t>(size));

  const auto layout = tessera::LayOutSafetensors(std::move(specs), header->metadata);
  FUZZ_CHECK(layout.ok() && layout->data_bytes == end);
  std::vector<uint8_t> file(layout->head.begin(), layout->head.end());
  file.resize(layout->file_bytes());
  const auto again = tessera::ParseSafetensors(file);
  FUZZ_CHECK(again.ok() && again->metadata == header->metadata);
  // Tensors without bytes share an offset: the reader sorts these by name alone.
  bool has_empty = false;
  for (const SafetensorsTensor& tensor : layout->tensors) has_empty |= tensor.size_bytes() == 0;
  FUZZ_CHECK(has_empty || SameTensors(again->tensors, layout->tensors));
  return 0;
}
