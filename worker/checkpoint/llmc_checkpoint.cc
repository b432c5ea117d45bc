#include "worker/checkpoint/llmc_checkpoint.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/internal/endian.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/mapped_file.h"
#include "storage/output_file.h"
#include "worker/checkpoint/float_type.h"
#include "worker/checkpoint/hf_names.h"
#include "worker/checkpoint/llmc_layout.h"

namespace tessera {
namespace {

// Words of the header.
enum LlmcWord {
  kMagicWord,
  kVersionWord,
  kContextWord,
  kVocabWord,
  kLayersWord,
  kHeadsWord,
  kHiddenWord,
  kPaddedVocabWord,
  kWords
};
constexpr const char* kWordNames[kWords] = {"magic",  "version", "maxT",     "vocab_size",
                                            "layers", "heads",   "channels", "padded_vocab_size"};

int32_t Word(absl::Span<const uint8_t> file, int word) {
  return static_cast<int32_t>(absl::little_endian::Load32(file.data() + 4 * word));
}

absl::Status WrongWord(absl::Span<const uint8_t> file, LlmcWord word, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat("header word ", static_cast<int>(word), " (",
                                                 kWordNames[word], ") is ", Word(file, word), ": ",
                                                 rule));
}

struct LlmcHeader {
  ModelConfig model;
  DType dtype = DType::kFloat32;
};

absl::StatusOr<LlmcHeader> ParseHeader(absl::Span<const uint8_t> file) {
  if (static_cast<int64_t>(file.size()) < kLlmcHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("has ", file.size(), " bytes, fewer than the ",
                                                   kLlmcHeaderBytes, " of the header"));
  }
  if (Word(file, kMagicWord) != kLlmcMagic) {
    return WrongWord(file, kMagicWord, absl::StrCat("must be ", kLlmcMagic));
  }
  LlmcHeader header;
  if (Word(file, kVersionWord) == kLlmcBfloat16Version) {
    header.dtype = DType::kBFloat16;
  } else if (Word(file, kVersionWord) != kLlmcFloat32Version) {
    return WrongWord(file, kVersionWord, "must be 3 (fp32) or 5 (bf16)");
  }
  for (const LlmcWord word : {kContextWord, kVocabWord, kLayersWord, kHeadsWord, kHiddenWord}) {
    // Four times this is an int32 still, and what CheckModelConfig allows.
    constexpr int32_t kMax = 1 << 28;
    if (Word(file, word) < 1 || Word(file, word) > kMax) {
      return WrongWord(file, word, absl::StrCat("must be 1 .. ", kMax));
    }
  }
  ModelConfig& model = header.model;
  model.context_length = Word(file, kContextWord);
  model.vocab_size = Word(file, kVocabWord);
  model.layers = Word(file, kLayersWord);
  model.heads = model.kv_heads = Word(file, kHeadsWord);
  model.hidden_size = Word(file, kHiddenWord);
  model.intermediate_size = 4 * model.hidden_size;
  if (Word(file, kPaddedVocabWord) != LlmcPaddedVocab(model.vocab_size)) {
    return WrongWord(file, kPaddedVocabWord,
                     absl::StrCat("must be ", LlmcPaddedVocab(model.vocab_size),
                                  ", vocab_size up to the next multiple of ", kLlmcVocabMultiple));
  }
  TESSERA_RETURN_IF_ERROR(CheckModelConfig(model));
  const absl::uint128 expected =
      LlmcNumElements(model) * DTypeSizeBytes(header.dtype) + kLlmcHeaderBytes;
  if (expected != file.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", file.size(), " bytes, but its header asks for ",
        (expected >> 63) == 0 ? absl::StrCat(absl::Uint128Low64(expected)) : "more than 2^63"));
  }
  return header;
}

// Rows of wte that the format adds are 0.
absl::Status CheckPadding(const LlmcHeader& header, absl::Span<const uint8_t> file) {
  const int64_t row_bytes = header.model.hidden_size * DTypeSizeBytes(header.dtype);
  for (int64_t row = header.model.vocab_size; row < LlmcPaddedVocab(header.model.vocab_size);
       ++row) {
    const auto bytes = file.subspan(kLlmcHeaderBytes + row * row_bytes, row_bytes);
    if (std::any_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte != 0; })) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor wte: row ", row, ", which pads the vocabulary, is not 0"));
    }
  }
  return absl::OkStatus();
}

class LlmcReader : public WeightReader {
 public:
  LlmcReader(std::string path, MappedFile file, const LlmcHeader& header)
      : path_(std::move(path)),
        file_(std::move(file)),
        dtype_(header.dtype),
        config_{header.model, std::nullopt, {}},
        parameters_(ParametersOf(header.model)),
        tensors_(LlmcTensors(header.model)) {}

  const HfConfig& config() const override { return config_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  absl::Status ReadParameter(absl::string_view name, int64_t offset_elements,
                             absl::Span<float> values) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      return absl::NotFoundError(absl::StrCat(path_, ": there is no parameter ", name));
    }
    const LlmcTensor& tensor = it->second;
    const auto count = static_cast<int64_t>(values.size());
    if (offset_elements < 0 || count > tensor.num_elements() - offset_elements) {
      return absl::OutOfRangeError(absl::StrCat(path_, ": ", name, ": ", count, " elements at ",
                                                offset_elements, " reach beyond its ",
                                                tensor.num_elements()));
    }
    if (!tensor.transposed) {
      DecodeFloats(dtype_, Bytes(tensor.offset_elements + offset_elements, count), values);
      return absl::OkStatus();
    }
    // Element (column, row) of the parameter is (row, column) in the file.
    int64_t column = offset_elements / tensor.rows, row = offset_elements % tensor.rows;
    for (float& value : values) {
      DecodeFloats(dtype_, Bytes(tensor.offset_elements + row * tensor.columns + column, 1),
                   absl::MakeSpan(&value, 1));
      if (++row == tensor.rows) {
        row = 0;
        ++column;
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Span<const uint8_t> Bytes(int64_t begin_elements, int64_t count) const {
    const int64_t item = DTypeSizeBytes(dtype_);
    return file_.bytes().subspan(kLlmcHeaderBytes + begin_elements * item, count * item);
  }

  const std::string path_;
  const MappedFile file_;
  const DType dtype_;
  const HfConfig config_;
  const std::vector<ParameterSpec> parameters_;
  const std::map<std::string, LlmcTensor, std::less<>> tensors_;
};

absl::Status CheckWritable(const ModelConfig& config, DType dtype) {
  TESSERA_RETURN_IF_ERROR(CheckModelConfig(config));
  const char* rule = nullptr;
  if (config.family != ModelFamily::kGpt2) rule = "family: must be gpt2";
  if (!config.tie_word_embeddings) rule = "tie_word_embeddings: must be true";
  if (config.intermediate_size != 4 * config.hidden_size) {
    rule = "intermediate_size: must be 4 hidden_size";
  }
  if (config.norm_epsilon != 1e-5f) rule = "norm_epsilon: must be 1e-5";
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) {
    rule = "dtype: must be float32 or bfloat16";
  }
  if ((LlmcNumElements(config) >> 60) != 0) rule = "the sizes: must make a file below 2^62 bytes";
  if (rule == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(rule, " in an llm.c checkpoint"));
}

std::array<uint8_t, kLlmcHeaderBytes> MakeHeader(const ModelConfig& config, DType dtype) {
  std::array<uint8_t, kLlmcHeaderBytes> header = {};
  auto set = [&](LlmcWord word, int64_t value) {
    absl::little_endian::Store32(header.data() + 4 * word, static_cast<uint32_t>(value));
  };
  set(kMagicWord, kLlmcMagic);
  set(kVersionWord, dtype == DType::kFloat32 ? kLlmcFloat32Version : kLlmcBfloat16Version);
  set(kContextWord, config.context_length);
  set(kVocabWord, config.vocab_size);
  set(kLayersWord, config.layers);
  set(kHeadsWord, config.heads);
  set(kHiddenWord, config.hidden_size);
  set(kPaddedVocabWord, LlmcPaddedVocab(config.vocab_size));
  return header;
}

// (rows, columns) from (columns, rows).
std::vector<float> Transposed(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> out(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      out[row * columns + column] = values[column * rows + row];
    }
  }
  return out;
}

absl::Status WriteTensor(const std::string& name, const LlmcTensor& tensor, DType dtype,
                         const ParameterSource& source, OutputFile& file) {
  const int64_t item = DTypeSizeBytes(dtype), size = tensor.num_elements();
  auto write = [&](int64_t begin, absl::Span<const float> values) -> absl::Status {
    std::vector<uint8_t> bytes(values.size() * item);
    if (absl::Status status = EncodeFloats(dtype, values, absl::MakeSpan(bytes)); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(file.path(), ": tensor ", name, " from element ", begin,
                                       " on: ", status.message()));
    }
    return file.WriteAt(kLlmcHeaderBytes + (tensor.offset_elements + begin) * item, bytes);
  };
  std::vector<float> values;
  // All of it where it is transposed, a piece otherwise.
  if (tensor.transposed) values.resize(size);
  for (int64_t begin = 0; begin < size; begin += kMaxWritePieceElements) {
    const int64_t count = std::min(kMaxWritePieceElements, size - begin);
    if (!tensor.transposed) values.resize(count);
    absl::Span<float> piece = absl::MakeSpan(values).subspan(tensor.transposed ? begin : 0, count);
    TESSERA_RETURN_IF_ERROR(source(name, begin, piece));
    if (!tensor.transposed) TESSERA_RETURN_IF_ERROR(write(begin, piece));
  }
  if (!tensor.transposed) return absl::OkStatus();
  return write(0, Transposed(values, tensor.rows, tensor.columns));
}

}  // namespace

bool IsLlmcCheckpoint(absl::Span<const uint8_t> file) {
  // As the length of a safetensors header this would be above 2^32.
  return file.size() >= 8 && Word(file, kMagicWord) == kLlmcMagic && Word(file, kVersionWord) != 0;
}

absl::StatusOr<std::unique_ptr<WeightReader>> OpenLlmcCheckpoint(const std::string& path) {
  auto with_path = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return with_path(file.status());
  const absl::StatusOr<LlmcHeader> header = ParseHeader(file->bytes());
  if (!header.ok()) return with_path(header.status());
  if (absl::Status status = CheckPadding(*header, file->bytes()); !status.ok()) {
    return with_path(status);
  }
  return std::make_unique<LlmcReader>(path, *std::move(file), *header);
}

absl::Status WriteLlmcCheckpoint(const std::string& path, const ModelConfig& config, DType dtype,
                                 const ParameterSource& source) {
  TESSERA_RETURN_IF_ERROR(CheckWritable(config, dtype));
  const auto data_elements = static_cast<int64_t>(absl::Uint128Low64(LlmcNumElements(config)));
  TESSERA_ASSIGN_OR_RETURN(
      OutputFile file,
      OutputFile::Create(path, kLlmcHeaderBytes + data_elements * DTypeSizeBytes(dtype)));
  TESSERA_RETURN_IF_ERROR(file.WriteAt(0, MakeHeader(config, dtype)));
  const auto tensors = LlmcTensors(config);
  // In forward order, as the source is asked; what is not written, the padding, is 0.
  for (const ParameterSpec& parameter : ParametersOf(config)) {
    TESSERA_RETURN_IF_ERROR(
        WriteTensor(parameter.name, tensors.at(parameter.name), dtype, source, file));
  }
  return file.Commit();
}

}  // namespace tessera
