#include "storage/sharded_safetensors_writer.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/status_macros.h"
#include "storage/json.h"
#include "storage/output_file.h"
#include "storage/sharded_safetensors.h"

namespace tessera {
namespace {

constexpr size_t kMaxShards = 99999;  // of the names' five digits

absl::StatusOr<std::vector<std::vector<SafetensorsSpec>>> Split(
    const std::vector<SafetensorsSpec>& specs, int64_t max_shard_bytes) {
  std::vector<std::vector<SafetensorsSpec>> shards;
  std::vector<SafetensorsSpec> current;
  int64_t current_bytes = 0;
  for (const SafetensorsSpec& spec : specs) {
    // Checks the tensor, and tells its size.
    TESSERA_ASSIGN_OR_RETURN(const SafetensorsLayout alone, LayOutSafetensors({spec}, {}));
    const int64_t size = alone.data_bytes;
    if (size > max_shard_bytes) {
      shards.push_back({spec});
      continue;
    }
    if (current_bytes > max_shard_bytes - size) {
      shards.push_back(std::exchange(current, {}));
      current_bytes = 0;
    }
    current.push_back(spec);
    current_bytes += size;
  }
  // No tensors at all are one file too.
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

absl::StatusOr<std::string> FormatIndex(const SafetensorsShardPlan& plan) {
  std::map<std::string, std::string> file_of;
  for (const SafetensorsShard& shard : plan.shards) {
    for (const SafetensorsTensor& tensor : shard.layout.tensors) {
      if (!file_of.emplace(tensor.name, shard.file_name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", QuotedForMessage(tensor.name), ": the name is there twice"));
      }
    }
  }
  JsonValue::Object weight_map;
  for (auto& [tensor, file] : file_of) weight_map.push_back({tensor, {file}});
  return FormatJsonPretty(
      {JsonValue::Object{{"metadata", {JsonValue::Object{{"total_size", {plan.total_size_bytes}}}}},
                         {"weight_map", {std::move(weight_map)}}}});
}

}  // namespace

absl::StatusOr<SafetensorsShardPlan> PlanSafetensorsShards(
    const std::vector<SafetensorsSpec>& specs, const std::map<std::string, std::string>& metadata,
    int64_t max_shard_bytes) {
  if (max_shard_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_shard_bytes: ", max_shard_bytes, ": must be at least 1"));
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::vector<SafetensorsSpec>> shards,
                           Split(specs, max_shard_bytes));
  if (shards.size() > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat("max_shard_bytes: ", max_shard_bytes, ": gives ",
                                                   shards.size(), " shards, above ", kMaxShards));
  }
  SafetensorsShardPlan plan;
  for (size_t i = 0; i < shards.size(); ++i) {
    SafetensorsShard shard;
    shard.file_name = shards.size() == 1
                          ? kSafetensorsFileName
                          : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    TESSERA_ASSIGN_OR_RETURN(shard.layout, LayOutSafetensors(std::move(shards[i]), metadata));
    if (__builtin_add_overflow(plan.total_size_bytes, shard.layout.data_bytes,
                               &plan.total_size_bytes)) {
      return absl::InvalidArgumentError("the tensors' sizes add up to more than 2^63 bytes");
    }
    plan.shards.push_back(std::move(shard));
  }
  if (plan.shards.size() > 1) {
    TESSERA_ASSIGN_OR_RETURN(plan.index_json, FormatIndex(plan));
  }
  return plan;
}

absl::StatusOr<ShardedSafetensorsWriter> ShardedSafetensorsWriter::Create(
    const std::string& folder, SafetensorsShardPlan plan) {
  for (const char* name : {kSafetensorsFileName, kSafetensorsIndexName}) {
    const std::string path = absl::StrCat(folder, "/", name);
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      return absl::AlreadyExistsError(absl::StrCat(path, ": the folder has weights already"));
    }
  }
  ShardedSafetensorsWriter writer;
  writer.folder_ = folder;
  writer.index_json_ = std::move(plan.index_json);
  for (SafetensorsShard& shard : plan.shards) {
    TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter file,
                             SafetensorsWriter::Create(absl::StrCat(folder, "/", shard.file_name),
                                                       std::move(shard.layout)));
    writer.writers_.push_back(std::make_unique<SafetensorsWriter>(std::move(file)));
    for (const SafetensorsTensor& tensor : writer.writers_.back()->layout().tensors) {
      writer.writer_of_.emplace(tensor.name, writer.writers_.back().get());
    }
  }
  return writer;
}

absl::Status ShardedSafetensorsWriter::Write(absl::string_view name, int64_t offset_bytes,
                                             absl::Span<const uint8_t> bytes) {
  const auto it = writer_of_.find(name);
  if (it == writer_of_.end()) {
    return absl::NotFoundError(
        absl::StrCat(folder_, ": there is no tensor ", QuotedForMessage(name)));
  }
  return it->second->Write(name, offset_bytes, bytes);
}

absl::Status ShardedSafetensorsWriter::Commit() {
  for (const std::unique_ptr<SafetensorsWriter>& writer : writers_) {
    TESSERA_RETURN_IF_ERROR(writer->Commit());
  }
  if (index_json_.empty()) return absl::OkStatus();
  return WriteWholeFile(absl::StrCat(folder_, "/", kSafetensorsIndexName), index_json_);
}

}  // namespace tessera
