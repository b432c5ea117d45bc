#include "worker/zero/unit_layout.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

ModelConfig OddConfig() {
  ModelConfig config;
  config.vocab_size = 257;
  config.context_length = 37;
  config.layers = 3;
  config.heads = 3;
  config.hidden_size = 33;
  config.intermediate_size = 50;
  return config;
}

TEST(UnitLayout, SlotsAreAlignedDisjointAndInsideEqualShards) {
  for (const UnitSpec& unit : Gpt2Units(OddConfig())) {
    for (const int group_size : {1, 2, 3, 4, 7}) {
      const UnitLayout layout = MakeUnitLayout(unit, group_size);
      ASSERT_EQ(layout.slots.size(), unit.parameters.size());
      int64_t end = 0;
      for (size_t i = 0; i < layout.slots.size(); ++i) {
        const ParameterSlot& slot = layout.slots[i];
        EXPECT_EQ(slot.offset_elements % UnitLayout::kAlignmentElements, 0);
        EXPECT_GE(slot.offset_elements, end);
        EXPECT_EQ(slot.size_elements, unit.parameters[i].shape.num_elements());
        end = slot.offset_elements + slot.size_elements;
      }
      EXPECT_LE(end, layout.size_elements);
      EXPECT_EQ(layout.shard_elements * group_size, layout.size_elements);
      EXPECT_EQ(layout.shard_elements % UnitLayout::kAlignmentElements, 0);
      EXPECT_LT(layout.size_elements - end, UnitLayout::kAlignmentElements * (group_size + 1));
    }
  }
}

TEST(UnitLayout, MatricesAndEmbeddingsDecayOthersDoNot) {
  for (const UnitSpec& unit : Gpt2Units(OddConfig())) {
    const UnitLayout layout = MakeUnitLayout(unit, 1);
    for (size_t i = 0; i < layout.slots.size(); ++i) {
      EXPECT_EQ(layout.slots[i].decays, unit.parameters[i].shape.num_dims() == 2)
          << unit.parameters[i].name;
    }
  }
}

// GPT-2 small has 124,439,808 parameters.
TEST(Units, CountOfGpt2Small) {
  ModelConfig config;
  config.vocab_size = 50257;
  config.context_length = 1024;
  config.layers = 12;
  config.heads = 12;
  config.hidden_size = 768;
  config.intermediate_size = 3072;
  int64_t count = 0;
  for (const UnitSpec& unit : Gpt2Units(config)) {
    for (const ParameterSpec& parameter : unit.parameters) count += parameter.shape.num_elements();
  }
  EXPECT_EQ(count, 124439808);
}

}  // namespace
}  // namespace tessera
