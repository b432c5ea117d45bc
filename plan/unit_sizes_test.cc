#include "plan/unit_sizes.h"

#include <gtest/gtest.h>

namespace tessera::plan {
namespace {

// GPT-2 124M (Radford et al., 2019; openai-community/gpt2: 124,439,808 parameters).
ModelSizes Gpt2Small() {
  return {.vocab_size = 50257,
          .context_length = 1024,
          .layers = 12,
          .heads = 12,
          .kv_heads = 12,
          .head_size = 64,
          .hidden_size = 768,
          .intermediate_size = 3072,
          .tied_embeddings = true};
}

std::vector<StageChunk> OneStage(int layers) { return {{{0, layers}, true, true}}; }

BigSize Total(const std::vector<UnitSize>& units) {
  BigSize total = 0;
  for (const UnitSize& unit : units) total += unit.parameter_elements();
  return total;
}

TEST(UnitSizes, KnownModels) {
  EXPECT_EQ(NumParameters(Gpt2Small()), 124439808);
  EXPECT_EQ(Total(UnitSizesOf(Gpt2Small(), {}, OneStage(12))), 124439808);
  // TinyLlama/TinyLlama-1.1B: 1,100,048,384 parameters.
  const ModelSizes llama{.is_llama = true,
                         .vocab_size = 32000,
                         .context_length = 2048,
                         .layers = 22,
                         .heads = 32,
                         .kv_heads = 4,
                         .head_size = 64,
                         .hidden_size = 2048,
                         .intermediate_size = 5632};
  EXPECT_EQ(NumParameters(llama), 1100048384);
}

TEST(UnitSizes, EveryParameterAndTheUnitAreAligned) {
  const UnitSize unit{.parameters = {1, 32, 33}};
  EXPECT_EQ(unit.parameter_elements(), 66);
  EXPECT_EQ(unit.padded_elements(1), 32 + 32 + 64);
  EXPECT_EQ(unit.padded_elements(3), 192);
  EXPECT_EQ(unit.shard_elements(3), 64);
}

TEST(UnitSizes, TensorParallelRanksShareMatrices) {
  // 50257 token ids over two ranks: 25129 each, one of padding.
  const std::vector<UnitSize> units = UnitSizesOf(Gpt2Small(), {.tp = 2}, OneStage(12));
  ASSERT_EQ(units.size(), 14u);
  EXPECT_EQ(units[0].parameters[0], 25129 * 768);
  EXPECT_EQ(units[0].parameters[1], 1024 * 768);
  EXPECT_EQ(units[1].parameters[2], 768 * 3 * 384);
}

TEST(UnitSizes, ATiedEmbeddingOnTwoStagesHasTheSameShards) {
  const MeshSize mesh{.dp = 3, .pp = 2};
  const UnitSize first = UnitSizesOf(Gpt2Small(), mesh, {{{0, 6}, true, false}}).front();
  const UnitSize last = UnitSizesOf(Gpt2Small(), mesh, {{{6, 6}, false, true}}).back();
  EXPECT_EQ(first.parameters[0], last.parameters[0]);
  EXPECT_EQ(first.shard_elements(3), last.shard_elements(3));
}

}  // namespace
}  // namespace tessera::plan
