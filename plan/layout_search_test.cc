#include "plan/layout_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "plan/layout_check.h"

namespace tessera::plan {
namespace {

using enum LayoutField;

// A GPT-2 of 4 layers and 0.9 million parameters, 16 sequences of 64 tokens a step.
LayoutJob SmallJob(const MeshSize& mesh, int micro_batches = 2) {
  LayoutJob job;
  TrafficRequest& traffic = job.request.job;
  traffic.model = {.vocab_size = 512,
                   .context_length = 64,
                   .layers = 4,
                   .heads = 8,
                   .kv_heads = 8,
                   .head_size = 16,
                   .hidden_size = 128,
                   .intermediate_size = 512,
                   .tied_embeddings = true};
  traffic.mesh = mesh;
  traffic.micro_batches = micro_batches;
  traffic.micro_batch_size = 16 / micro_batches / mesh.dp;
  traffic.sequence_length = 64;
  traffic.recompute_layers = {0, 4};
  job.request.schedule = {PipelineSchedule::k1f1b, mesh.pp, micro_batches, 1};
  return job;
}

int64_t WorstBytes(const LayoutJob& job) {
  int64_t worst = 0;
  for (const RankLedger& ledger : PredictLedgers(job.request, StagesOf(job))) {
    worst = std::max(worst, ledger.needed_bytes());
  }
  return worst;
}

bool IsTrainable(const LayoutJob& job) {
  const TrafficRequest& traffic = job.request.job;
  LayoutRequest request;
  request.mesh = traffic.mesh;
  request.layers = traffic.model.layers;
  request.heads = traffic.model.heads;
  request.kv_heads = traffic.model.kv_heads;
  request.intermediate_size = traffic.model.intermediate_size;
  request.sequence_length = traffic.sequence_length;
  request.micro_batch_size = traffic.micro_batch_size;
  request.schedule = job.request.schedule;
  request.chunk_layers = job.chunk_layers;
  return !CheckLayout(request);
}

std::vector<LayoutField> Changed(const LayoutJob& asked, const LayoutJob& job) {
  std::vector<LayoutField> changed;
  for (const LayoutField field : kLayoutFields) {
    if (LayoutChoice::Of(asked).of(field) != LayoutChoice::Of(job).of(field)) {
      changed.push_back(field);
    }
  }
  return changed;
}

// The least change of the fields with which the job fits, by trying all of them; negative: none.
double LeastAmountThatFits(const LayoutSearchRequest& request,
                           const std::vector<LayoutField>& fields) {
  struct Tried {
    LayoutChoice choice;
    double amount = 0;
  };
  const LayoutChoice asked = LayoutChoice::Of(request.job);
  std::vector<Tried> all = {{asked, 0}};
  for (const LayoutField field : fields) {
    std::vector<Tried> next;
    for (const Tried& each : all) {
      for (const int64_t value : ValuesOf(request.job, field, request.ranks())) {
        next.push_back({each.choice, each.amount + AmountOfChange(field, asked.of(field), value)});
        next.back().choice.Set(field, value);
      }
    }
    all = next;
  }
  double least = -1;
  for (const Tried& each : all) {
    if (least >= 0 && each.amount >= least) continue;
    const auto job = each.choice.ApplyTo(request.job, request.ranks());
    if (job && WorstBytes(*job) <= request.device_bytes[0]) least = each.amount;
  }
  return least;
}

double AmountOf(const LayoutSearchRequest& request, const FittingLayout& layout) {
  const LayoutChoice from = LayoutChoice::Of(request.job), to = LayoutChoice::Of(layout.job);
  double amount = 0;
  for (const LayoutField field : layout.changed) {
    amount += AmountOfChange(field, from.of(field), to.of(field));
  }
  return amount;
}

// What layouts are ordered by.
std::tuple<size_t, int64_t, double> DistanceOf(const LayoutSearchRequest& request,
                                               const FittingLayout& layout) {
  return {layout.changed.size(),
          std::count_if(layout.changed.begin(), layout.changed.end(), IsAxis),
          AmountOf(request, layout)};
}

void ExpectSoundAndNearest(const LayoutSearchRequest& request,
                           const std::vector<FittingLayout>& layouts) {
  ASSERT_LE(static_cast<int>(layouts.size()), request.max_results);
  for (const FittingLayout& layout : layouts) {
    const TrafficRequest& traffic = layout.job.request.job;
    EXPECT_TRUE(IsTrainable(layout.job));
    EXPECT_LE(traffic.mesh.world_size(), request.ranks());
    EXPECT_EQ(layout.job.global_batch_size(), request.job.global_batch_size());
    EXPECT_EQ(layout.changed, Changed(request.job, layout.job));
    EXPECT_EQ(layout.ledger.needed_bytes(), WorstBytes(layout.job));
    EXPECT_LE(layout.ledger.needed_bytes(), request.device_bytes[0]);
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    EXPECT_DOUBLE_EQ(AmountOf(request, layouts[i]),
                     LeastAmountThatFits(request, layouts[i].changed));
    for (size_t nearer = 0; nearer < i; ++nearer) {
      EXPECT_LE(DistanceOf(request, layouts[nearer]), DistanceOf(request, layouts[i]));
      // A part of the changed fields is not enough.
      EXPECT_FALSE(std::includes(layouts[i].changed.begin(), layouts[i].changed.end(),
                                 layouts[nearer].changed.begin(), layouts[nearer].changed.end()));
    }
  }
  // Every single field that is enough is there before two are listed.
  const bool is_full = static_cast<int>(layouts.size()) == request.max_results;
  if (is_full && layouts.back().changed.size() == 1) return;
  for (const LayoutField field : kLayoutFields) {
    SCOPED_TRACE(LayoutFieldName(field));
    const std::vector<LayoutField> alone = {field};
    const bool is_there =
        std::any_of(layouts.begin(), layouts.end(),
                    [&](const FittingLayout& layout) { return layout.changed == alone; });
    EXPECT_EQ(is_there, LeastAmountThatFits(request, alone) >= 0);
  }
}

TEST(LayoutSearch, ResultsFitAndAreNearest) {
  int with_several = 0, without = 0;
  for (const MeshSize& mesh : {MeshSize{}, MeshSize{.dp = 2}, MeshSize{.cp = 2, .pp = 2},
                               MeshSize{.dp = 4, .tp = 2}, MeshSize{.pp = 4}}) {
    for (const int ranks : {1, 2, 4, 8, 16}) {
      for (const double share : {0.95, 0.7, 0.5, 0.3, 0.1}) {
        for (const int max_results : {1, 3, 100}) {
          LayoutSearchRequest request{SmallJob(mesh), {}, max_results};
          request.device_bytes.assign(
              ranks, static_cast<int64_t>(static_cast<double>(WorstBytes(request.job)) * share));
          const std::vector<FittingLayout> layouts = FindFittingLayouts(request);
          ExpectSoundAndNearest(request, layouts);
          if (layouts.empty()) ++without;
          if (!layouts.empty() && layouts.front().changed.size() > 1) ++with_several;
        }
      }
    }
  }
  EXPECT_GT(with_several, 0);
  EXPECT_GT(without, 0);
}

TEST(LayoutSearch, KeepsTheMeshWhereThatIsEnough) {
  LayoutSearchRequest request{SmallJob({.dp = 4}), {}};
  LayoutJob sharded = request.job;
  sharded.request.job.zero_stage = 2;
  request.device_bytes.assign(16, WorstBytes(sharded));
  const std::vector<FittingLayout> layouts = FindFittingLayouts(request);
  ASSERT_EQ(layouts.size(), 3u);
  bool has_zero_stage = false, has_other_mesh = false;
  for (const FittingLayout& layout : layouts) {
    EXPECT_EQ(layout.changed.size(), 1u);
    has_zero_stage |= layout.changed.front() == kZeroStage;
    EXPECT_FALSE(has_other_mesh && !IsAxis(layout.changed.front()));
    has_other_mesh |= IsAxis(layout.changed.front());
  }
  EXPECT_TRUE(has_zero_stage);
}

TEST(LayoutSearch, OfOneFieldTheLeastChange) {
  LayoutSearchRequest request{SmallJob({.dp = 4}, /*micro_batches=*/1), {}, 8};
  LayoutJob changed = request.job;
  changed.request.job.micro_batches = changed.request.schedule.micro_batches = 4;
  changed.request.job.micro_batch_size = 1;
  request.device_bytes.assign(4, WorstBytes(changed));
  const std::vector<FittingLayout> layouts = FindFittingLayouts(request);
  const auto micro_batches =
      std::find_if(layouts.begin(), layouts.end(), [](const FittingLayout& layout) {
        return layout.changed == std::vector<LayoutField>{kMicroBatches};
      });
  ASSERT_NE(micro_batches, layouts.end());
  EXPECT_EQ(micro_batches->job.request.job.micro_batches, 4);
  EXPECT_EQ(micro_batches->job.request.schedule.micro_batches, 4);
  EXPECT_EQ(micro_batches->job.request.job.micro_batch_size, 1);
}

TEST(LayoutSearch, NothingWhereNothingFits) {
  LayoutSearchRequest request{SmallJob({.dp = 2}), std::vector<int64_t>(16, 4096)};
  EXPECT_TRUE(FindFittingLayouts(request).empty());
  request.device_bytes.assign(16, 1 << 30);
  request.max_results = 0;
  EXPECT_TRUE(FindFittingLayouts(request).empty());
}

// The stage with the head needs most: one large device is enough for it.
TEST(LayoutSearch, EachRankFitsADeviceOfItsOwn) {
  LayoutSearchRequest request{SmallJob({}), {}, 100};
  LayoutJob two = SmallJob({.pp = 2});
  std::vector<int64_t> needed;
  for (const RankLedger& ledger : PredictLedgers(two.request, StagesOf(two))) {
    needed.push_back(ledger.needed_bytes());
  }
  ASSERT_NE(needed[0], needed[1]);
  ASSERT_GT(WorstBytes(request.job), std::max(needed[0], needed[1]));
  auto offers_two_stages = [&] {
    const std::vector<FittingLayout> layouts = FindFittingLayouts(request);
    return std::any_of(layouts.begin(), layouts.end(), [](const FittingLayout& layout) {
      return layout.changed == std::vector<LayoutField>{LayoutField::kPp};
    });
  };
  request.device_bytes = needed;
  EXPECT_TRUE(offers_two_stages());
  request.device_bytes.assign(2, std::min(needed[0], needed[1]));
  EXPECT_FALSE(offers_two_stages());
}

// Clipping before the reduction needs all gradients whole.
TEST(LayoutSearch, ReducesOnceWhereThatIsNeeded) {
  LayoutJob job = SmallJob({.dp = 2});
  EXPECT_EQ(ValuesOf(job, kGradientReduction, 2).size(), 1u);
  job.request.job.clips_before_reduce = true;
  EXPECT_TRUE(ValuesOf(job, kGradientReduction, 2).empty());
}

TEST(LayoutSearch, AnotherPipelineHasABalancedPartition) {
  LayoutJob job = SmallJob({.pp = 2});
  job.chunk_layers = {3, 1};
  LayoutChoice choice = LayoutChoice::Of(job);
  choice.Set(kMicroBatches, 4);
  EXPECT_EQ(choice.ApplyTo(job, 8)->chunk_layers, job.chunk_layers);
  choice.Set(kPp, 4);
  EXPECT_TRUE(choice.ApplyTo(job, 8)->chunk_layers.empty());
  EXPECT_FALSE(choice.ApplyTo(job, 3));  // too many ranks
  choice.Set(kMicroBatches, 3);
  EXPECT_FALSE(choice.ApplyTo(job, 8));  // 16 sequences
}

// All the work there can be, with many stages and micro-batches: a model of 10^13 parameters whose
// state fits nowhere, and one whose activations do not.
TEST(LayoutSearch, EndsWhereNothingFits) {
  LayoutJob job = SmallJob({.dp = 2, .pp = 64, .tp = 2});
  TrafficRequest& traffic = job.request.job;
  traffic.model.layers = 128;
  traffic.model.heads = traffic.model.kv_heads = 128;
  traffic.model.head_size = 640;
  traffic.model.hidden_size = 128 * 640;
  traffic.model.intermediate_size = 4 * traffic.model.hidden_size;
  traffic.sequence_length = 8192;
  traffic.recompute_layers = {0, 128};
  traffic.micro_batches = job.request.schedule.micro_batches = 1 << 12;
  traffic.micro_batch_size = 64;
  EXPECT_TRUE(FindFittingLayouts({job, std::vector<int64_t>(4096, int64_t{1} << 30)}).empty());
  traffic.model.head_size = 8;
  traffic.model.hidden_size = 1024;
  traffic.model.intermediate_size = 4096;
  traffic.sequence_length = 1 << 24;
  EXPECT_TRUE(FindFittingLayouts({job, std::vector<int64_t>(4096, int64_t{1} << 33)}).empty());
}

}  // namespace
}  // namespace tessera::plan
