#include "storage/sharded_safetensors.h"

#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/status_macros.h"
#include "storage/json.h"
#include "storage/mapped_file.h"

namespace tessera {
namespace {

constexpr size_t kMaxFileNameBytes = 255;
constexpr absl::string_view kEnding = ".safetensors";

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// A name that cannot lead out of the folder.
bool IsPlainFileName(absl::string_view name) {
  return name.size() > kEnding.size() && name.size() <= kMaxFileNameBytes && name[0] != '.' &&
         absl::EndsWith(name, kEnding) &&
         name.find_first_of(absl::string_view("/\\\0", 3)) == absl::string_view::npos;
}

absl::StatusOr<bool> Exists(const std::string& path) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return false;
  if (!file.ok()) return WithPath(path, file.status());
  return true;
}

// Of one shard: the index names its tensors, all of them and no others.
absl::Status CheckShard(const SafetensorsFile& file, const std::string& name,
                        const std::map<std::string, std::string>& weight_map) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const auto it = weight_map.find(tensor.name);
    if (it == weight_map.end() || it->second != name) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path(), ": tensor ", QuotedForMessage(tensor.name), " is in this file, but ",
          kSafetensorsIndexName, it == weight_map.end() ? " lacks it" : " names another file"));
    }
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (shard == name && file.Find(tensor) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ",
                                                     QuotedForMessage(tensor), " is missing, but ",
                                                     kSafetensorsIndexName, " names this file"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(absl::string_view text) {
  TESSERA_ASSIGN_OR_RETURN(const JsonValue json, ParseJsonValue(text));
  const JsonValue* map = json.Find("weight_map");
  const auto* members = map == nullptr ? nullptr : map->get<JsonValue::Object>();
  if (members == nullptr) return absl::InvalidArgumentError("weight_map is missing or no object");
  if (members->empty()) return absl::InvalidArgumentError("weight_map is empty");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, value] : *members) {
    const auto* file = value.get<std::string>();
    if (file == nullptr || !IsPlainFileName(*file)) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight_map: ", QuotedForMessage(tensor), ": ",
                       file == nullptr ? "the value" : QuotedForMessage(*file),
                       " is not the name of a .safetensors file in the same folder"));
    }
    weight_map.emplace(tensor, *file);
  }
  return weight_map;
}

void ShardedSafetensors::Add(SafetensorsFile file) {
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const SafetensorsTensor& tensor : files_.back()->tensors()) {
    tensors_.emplace(tensor.name, Entry{&tensor, files_.back().get()});
  }
}

absl::StatusOr<ShardedSafetensors> ShardedSafetensors::OpenFile(const std::string& path) {
  ShardedSafetensors opened;
  TESSERA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  opened.Add(std::move(file));
  return opened;
}

absl::StatusOr<ShardedSafetensors> ShardedSafetensors::OpenFolder(const std::string& folder) {
  const std::string single = absl::StrCat(folder, "/", kSafetensorsFileName);
  const std::string index = absl::StrCat(folder, "/", kSafetensorsIndexName);
  TESSERA_ASSIGN_OR_RETURN(const bool has_single, Exists(single));
  TESSERA_ASSIGN_OR_RETURN(const bool has_index, Exists(index));
  if (has_single && has_index) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": has both ", kSafetensorsFileName,
                                                   " and ", kSafetensorsIndexName,
                                                   "; it is not known which are the weights"));
  }
  if (has_single) return OpenFile(single);
  if (!has_index) {
    return absl::NotFoundError(absl::StrCat(folder, ": has neither ", kSafetensorsFileName, " nor ",
                                            kSafetensorsIndexName));
  }

  absl::StatusOr<MappedFile> text = MappedFile::Open(index);
  if (!text.ok()) return WithPath(index, text.status());
  const absl::StatusOr<std::map<std::string, std::string>> weight_map = ParseSafetensorsIndex(
      absl::string_view(reinterpret_cast<const char*>(text->bytes().data()), text->bytes().size()));
  if (!weight_map.ok()) return WithPath(index, weight_map.status());
  std::set<std::string> names;
  for (const auto& [tensor, name] : *weight_map) names.insert(name);
  ShardedSafetensors opened;
  for (const std::string& name : names) {
    TESSERA_ASSIGN_OR_RETURN(SafetensorsFile file,
                             SafetensorsFile::Open(absl::StrCat(folder, "/", name)));
    TESSERA_RETURN_IF_ERROR(CheckShard(file, name, *weight_map));
    opened.Add(std::move(file));
  }
  return opened;
}

}  // namespace tessera
