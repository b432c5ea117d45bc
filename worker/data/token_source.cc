#include "worker/data/token_source.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/rpc/field_error.h"
#include "storage/mapped_file.h"
#include "worker/data/token_format.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class MappedTokenSource : public TokenSource {
 public:
  MappedTokenSource(MappedFile file, TokenLayout layout)
      : file_(std::move(file)), layout_(layout) {}
  int64_t num_tokens() const override { return layout_.num_tokens; }
  void Read(int64_t begin, absl::Span<int32_t> tokens) const override {
    ReadTokens(layout_, file_.bytes(), begin, tokens);
  }

 private:
  const MappedFile file_;
  const TokenLayout layout_;
};

// data_root/path, refusing a path that leaves the root: by its text, or through a symbolic link.
absl::StatusOr<std::string> ResolveInsideRoot(const std::string& data_root, const std::string& path,
                                              const std::string& field) {
  bool inside = !path.empty() && path[0] != '/' && path.find('\0') == std::string::npos;
  for (absl::string_view part : absl::StrSplit(path, '/')) inside = inside && part != "..";
  std::error_code error;
  const fs::path root = inside ? fs::canonical(data_root, error) : fs::path();
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data root ", data_root, " cannot be read: ", error.message()));
  }
  if (inside) {
    const fs::path resolved = fs::weakly_canonical(root / path, error);
    const auto [end, at] =
        std::mismatch(root.begin(), root.end(), resolved.begin(), resolved.end());
    inside = !error && end == root.end();
    if (inside) return resolved.string();
  }
  return InvalidField(field, path, absl::StrCat("leaves the data root ", data_root));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokenSource(const std::string& data_root,
                                                             const std::string& path,
                                                             v1::DataFormat format,
                                                             int32_t vocab_size, int64_t min_tokens,
                                                             const std::string& field) {
  absl::StatusOr<std::string> resolved = ResolveInsideRoot(data_root, path, field);
  if (!resolved.ok()) return resolved.status();
  absl::StatusOr<MappedFile> file = MappedFile::Open(*resolved);
  if (!file.ok()) {
    return FieldError(file.status().code(), field, path, file.status().message());
  }
  if (file->bytes().empty()) return InvalidField(field, path, "is empty");
  absl::StatusOr<TokenLayout> layout = ParseTokenLayout(format, file->bytes());
  if (!layout.ok()) return InvalidField(field, path, layout.status().message());
  if (layout->num_tokens < min_tokens) {
    return InvalidField(field, path,
                        absl::StrCat("has ", layout->num_tokens, " tokens, fewer than the ",
                                     min_tokens, " of one sequence and its last target"));
  }
  const IdViolation bad = FindIdAtLeast(*layout, file->bytes(), vocab_size);
  if (bad.index >= 0) {
    return InvalidField(
        field, path,
        absl::StrCat("token ", bad.index, " (byte ", bad.byte_offset, ") is ", bad.id,
                     ", not below spec.model.vocab_size (", vocab_size, ")"));
  }
  return std::make_unique<MappedTokenSource>(*std::move(file), *layout);
}

absl::StatusOr<JobData> OpenJobData(const v1::TrainingJobSpec& spec, const std::string& data_root) {
  JobData data;
  const v1::DataSpec& files = spec.data();
  const int64_t min_tokens = int64_t{files.sequence_length()} + 1;
  absl::StatusOr<std::unique_ptr<TokenSource>> train =
      OpenTokenSource(data_root, files.path(), files.format(), spec.model().vocab_size(),
                      min_tokens, "spec.data.path");
  if (!train.ok()) return train.status();
  data.train = *std::move(train);
  if (spec.has_evaluation()) {
    absl::StatusOr<std::unique_ptr<TokenSource>> validation =
        OpenTokenSource(data_root, files.validation_path(), files.format(),
                        spec.model().vocab_size(), min_tokens, "spec.data.validation_path");
    if (!validation.ok()) return validation.status();
    data.validation = *std::move(validation);
  }
  return data;
}

}  // namespace tessera
