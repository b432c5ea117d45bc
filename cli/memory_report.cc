#include "cli/memory_report.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/render.h"
#include "cli/table.h"

namespace tessera {
namespace {

struct Category {
  const char* name;
  int64_t (v1::DeviceMemory::*bytes)() const;
};
constexpr Category kCategories[] = {
    {"parameters", &v1::DeviceMemory::parameters_bytes},
    {"gradients", &v1::DeviceMemory::gradients_bytes},
    {"optimizer", &v1::DeviceMemory::optimizer_bytes},
    {"activations", &v1::DeviceMemory::activations_bytes},
    {"communication", &v1::DeviceMemory::communication_bytes},
    {"workspace", &v1::DeviceMemory::workspace_bytes},
    {"total", &v1::DeviceMemory::total_bytes},
};

// Of measured bytes, relative to the prediction.
std::string DifferenceText(int64_t predicted, int64_t measured) {
  if (predicted == measured) return "equal";
  if (predicted == 0) return absl::StrFormat("%+d bytes", measured);
  return absl::StrFormat(
      "%+.2g%%", 100 * static_cast<double>(measured - predicted) / static_cast<double>(predicted));
}

struct OtherTier {
  const char* name;
  int64_t (v1::TierMemory::*bytes)() const;
};
constexpr OtherTier kOtherTiers[] = {
    {"host", &v1::TierMemory::host_bytes},
    {"nvme", &v1::TierMemory::nvme_bytes},
};

int64_t Most(const v1::RankMemory& rank) {
  return std::max(rank.predicted().total_bytes(), rank.measured().total_bytes());
}

void AddRank(const v1::RankMemory& rank, Table& table) {
  for (const Category& category : kCategories) {
    const int64_t predicted = (rank.predicted().*category.bytes)();
    const int64_t measured = (rank.measured().*category.bytes)();
    table.Add({absl::StrCat(rank.global_rank()), category.name, ExactBytes(predicted),
               rank.has_measured() ? ExactBytes(measured) : "-",
               rank.has_measured() ? DifferenceText(predicted, measured) : "-"});
  }
  if (!rank.has_predicted_tiers() && !rank.has_measured_tiers()) return;
  for (const OtherTier& tier : kOtherTiers) {
    const int64_t predicted = (rank.predicted_tiers().*tier.bytes)();
    const int64_t measured = (rank.measured_tiers().*tier.bytes)();
    table.Add({absl::StrCat(rank.global_rank()), tier.name, ExactBytes(predicted),
               rank.has_measured() ? ExactBytes(measured) : "-",
               rank.has_measured() ? DifferenceText(predicted, measured) : "-"});
  }
}

}  // namespace

std::string StageMemoryTable(const v1::TrainingPlan& plan, int rows) {
  std::vector<std::string> header = {"STAGE"};
  for (const Category& category : kCategories) {
    header.push_back(absl::AsciiStrToUpper(category.name));
  }
  const bool has_other_tiers =
      std::any_of(plan.stages().begin(), plan.stages().end(),
                  [](const v1::PlannedStage& stage) { return stage.has_tiers(); });
  for (const OtherTier& tier : kOtherTiers) {
    if (has_other_tiers) header.push_back(absl::AsciiStrToUpper(tier.name));
  }
  Table table(header);
  for (int i = 0; i < std::min(rows, plan.stages_size()); ++i) {
    std::vector<std::string> row = {absl::StrCat(plan.stages(i).pp_rank())};
    for (const Category& category : kCategories) {
      row.push_back(HumanBytes(static_cast<double>((plan.stages(i).memory().*category.bytes)())));
    }
    for (const OtherTier& tier : kOtherTiers) {
      if (!has_other_tiers) continue;
      row.push_back(HumanBytes(static_cast<double>((plan.stages(i).tiers().*tier.bytes)())));
    }
    table.Add(row);
  }
  return table.ToString();
}

std::string JobMemoryTable(const v1::TrainingJobStatus& status, bool wide) {
  const auto& ranks = status.memory();
  if (ranks.empty()) return "";
  Table table({"RANK", "CATEGORY", "PREDICTED", "MEASURED", "DIFFERENCE"});
  const auto most = std::max_element(
      ranks.begin(), ranks.end(),
      [](const v1::RankMemory& a, const v1::RankMemory& b) { return Most(a) < Most(b); });
  if (!wide) AddRank(*most, table);
  for (const v1::RankMemory& rank : ranks) {
    if (wide) AddRank(rank, table);
  }
  return table.ToString();
}

}  // namespace tessera
