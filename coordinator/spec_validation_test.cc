#include "coordinator/spec_validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "proto/rpc/field_error.h"

namespace tessera {
namespace {

v1::TrainingJobSpec Valid() {
  v1::TrainingJobSpec spec;
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_GPT2);
  spec.mutable_model()->set_vocab_size(257);
  spec.mutable_model()->set_context_length(37);
  spec.mutable_model()->set_layers(1);
  spec.mutable_model()->set_heads(3);
  spec.mutable_model()->set_hidden_size(48);
  spec.mutable_data()->set_path("a");
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->set_sequence_length(37);
  spec.mutable_learning_rate()->set_peak(0.1);
  spec.mutable_batch()->set_global_batch_size(12);
  spec.mutable_batch()->set_micro_batches(3);
  spec.set_steps(10);
  spec.mutable_mesh()->set_dp(4);
  return spec;
}

TEST(SpecValidation, AcceptsAValidSpec) { EXPECT_TRUE(ValidateSpec(Valid()).ok()); }

TEST(SpecValidation, EnumValuesOffTheListAreRefused) {
  struct Case {
    const char* field;
    std::function<void(v1::TrainingJobSpec&)> change;
  };
  const Case cases[] = {
      {"spec.model.family",
       [](auto& s) { s.mutable_model()->set_family(static_cast<v1::ModelFamily>(99)); }},
      {"spec.data.format",
       [](auto& s) { s.mutable_data()->set_format(static_cast<v1::DataFormat>(99)); }},
      {"spec.precision", [](auto& s) { s.set_precision(static_cast<v1::Precision>(99)); }},
      {"spec.recompute", [](auto& s) { s.set_recompute(static_cast<v1::Recompute>(99)); }},
      {"spec.learning_rate.decay",
       [](auto& s) {
         s.mutable_learning_rate()->set_decay(static_cast<v1::LearningRateDecay>(99));
       }},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = Valid();
    c.change(spec);
    const absl::Status status = ValidateSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_EQ(FieldOf(status), c.field);
  }
}

v1::TrainingJobSpec ValidLlama() {
  v1::TrainingJobSpec spec = Valid();
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_family(v1::MODEL_FAMILY_LLAMA);
  model.set_heads(4);
  model.set_kv_heads(2);
  model.set_intermediate_size(100);
  model.set_attention_bias(true);
  model.mutable_rope_scaling()->set_factor(8);
  model.mutable_rope_scaling()->set_original_context_length(64);
  spec.set_precision(v1::PRECISION_FP16);
  spec.set_gradient_precision(v1::PRECISION_FP32);
  spec.mutable_loss_scale()->set_initial(1024);
  spec.set_recompute(v1::RECOMPUTE_FULL);
  spec.mutable_recompute_layers()->set_count(1);
  spec.set_initial_weights("models/llama");
  spec.mutable_export_()->set_path("out");
  return spec;
}

TEST(SpecValidation, AcceptsAValidLlama) {
  EXPECT_TRUE(ValidateSpec(ValidLlama()).ok()) << ValidateSpec(ValidLlama());
}

TEST(SpecValidation, EachRuleNamesItsField) {
  struct Case {
    const char* field;
    std::function<void(v1::TrainingJobSpec&)> change;
  };
  const Case cases[] = {
      {"spec.model.kv_heads", [](auto& s) { s.mutable_model()->set_kv_heads(3); }},
      {"spec.model.kv_heads", [](auto& s) { s.mutable_model()->set_kv_heads(0); }},
      {"spec.model.head_size", [](auto& s) { s.mutable_model()->set_head_size(7); }},
      {"spec.model.head_size", [](auto& s) { s.mutable_model()->set_hidden_size(36); }},
      {"spec.model.intermediate_size",
       [](auto& s) { s.mutable_model()->clear_intermediate_size(); }},
      {"spec.model.norm_epsilon", [](auto& s) { s.mutable_model()->set_norm_epsilon(0); }},
      {"spec.model.rope_theta", [](auto& s) { s.mutable_model()->set_rope_theta(-1); }},
      {"spec.model.rope_scaling.factor",
       [](auto& s) { s.mutable_model()->mutable_rope_scaling()->set_factor(0.5); }},
      {"spec.model.rope_scaling.high_freq_factor",
       [](auto& s) { s.mutable_model()->mutable_rope_scaling()->set_high_freq_factor(1); }},
      {"spec.model.rope_scaling.original_context_length",
       [](auto& s) { s.mutable_model()->mutable_rope_scaling()->clear_original_context_length(); }},
      {"spec.model.kv_heads",
       [](auto& s) { s.mutable_model()->set_family(v1::MODEL_FAMILY_GPT2); }},
      {"spec.gradient_precision", [](auto& s) { s.set_gradient_precision(v1::PRECISION_BF16); }},
      {"spec.loss_scale", [](auto& s) { s.set_precision(v1::PRECISION_BF16); }},
      {"spec.loss_scale.initial", [](auto& s) { s.mutable_loss_scale()->set_initial(0); }},
      {"spec.loss_scale.minimum", [](auto& s) { s.mutable_loss_scale()->set_minimum(2048); }},
      {"spec.loss_scale.growth_interval",
       [](auto& s) { s.mutable_loss_scale()->set_growth_interval(0); }},
      {"spec.loss_scale.hysteresis", [](auto& s) { s.mutable_loss_scale()->set_hysteresis(0); }},
      {"spec.recompute_layers.first", [](auto& s) { s.mutable_recompute_layers()->set_first(1); }},
      {"spec.recompute_layers.count", [](auto& s) { s.mutable_recompute_layers()->set_count(2); }},
      {"spec.initial_weights", [](auto& s) { s.set_initial_weights("../weights"); }},
      {"spec.export.path", [](auto& s) { s.mutable_export_()->set_path("/tmp/x"); }},
      {"spec.export.path", [](auto& s) { s.mutable_export_()->clear_path(); }},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = ValidLlama();
    c.change(spec);
    const absl::Status status = ValidateSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field << status;
    EXPECT_EQ(FieldOf(status), c.field) << status;
  }
}

TEST(SpecValidation, TokenizerAndTextFieldGoWithTextOnly) {
  struct Case {
    const char* name;
    v1::DataFormat format;
    const char* tokenizer;
    const char* text_field;
    const char* field;  // that is refused; empty: none
  };
  const Case cases[] = {
      {"text", v1::DATA_FORMAT_TEXT, "tokenizers/gpt2", "", ""},
      {"jsonl", v1::DATA_FORMAT_JSONL, "tokenizer.json", "body", ""},
      {"jsonl_bytes", v1::DATA_FORMAT_JSONL, "", "", ""},
      {"megatron", v1::DATA_FORMAT_MEGATRON, "", "", ""},
      {"tokens", v1::DATA_FORMAT_NANOGPT, "tokenizer.json", "", "spec.data.tokenizer"},
      {"megatron_tokenizer", v1::DATA_FORMAT_MEGATRON, "t", "", "spec.data.tokenizer"},
      {"outside", v1::DATA_FORMAT_TEXT, "a/../../t", "", "spec.data.tokenizer"},
      {"absolute", v1::DATA_FORMAT_JSONL, "/t", "", "spec.data.tokenizer"},
      {"text_field", v1::DATA_FORMAT_TEXT, "", "body", "spec.data.text_field"},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = Valid();
    spec.mutable_data()->set_format(c.format);
    spec.mutable_data()->set_tokenizer(c.tokenizer);
    spec.mutable_data()->set_text_field(c.text_field);
    const absl::Status status = ValidateSpec(spec);
    EXPECT_EQ(FieldOf(status).value_or(""), c.field) << c.name << " " << status;
  }
}

TEST(SpecValidation, SamplingNeedsBytes) {
  v1::TrainingJobSpec spec = Valid();
  spec.mutable_sample()->set_prompt("a");
  spec.mutable_sample()->set_max_new_tokens(1);
  EXPECT_TRUE(ValidateSpec(spec).ok()) << ValidateSpec(spec);
  spec.mutable_data()->set_tokenizer("t");
  EXPECT_EQ(FieldOf(ValidateSpec(spec)).value_or(""), "spec.sample");
}

TEST(SpecValidation, AVerificationHasNoResultsOfItsOwn) {
  v1::TrainingJobSpec spec = Valid();
  spec.mutable_verification();
  EXPECT_EQ(ValidateSpec(spec), absl::OkStatus());
  spec.mutable_trace()->set_step(1);
  EXPECT_EQ(FieldOf(ValidateSpec(spec)), "spec.trace");
  spec.mutable_export_()->set_path("out");
  EXPECT_EQ(FieldOf(ValidateSpec(spec)), "spec.export");
  spec.mutable_sample()->set_prompt("a");
  spec.mutable_sample()->set_max_new_tokens(1);
  EXPECT_EQ(FieldOf(ValidateSpec(spec)), "spec.sample");
  spec.mutable_data()->set_validation_path("b");
  spec.mutable_evaluation()->set_every_steps(1);
  EXPECT_EQ(FieldOf(ValidateSpec(spec)), "spec.evaluation");
  EXPECT_EQ(ValidateSpec(spec).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SpecValidation, TopPIsAProbability) {
  v1::TrainingJobSpec spec = Valid();
  spec.mutable_sample()->set_prompt("a");
  spec.mutable_sample()->set_max_new_tokens(1);
  for (const double good : {0.1, 1.0}) {
    spec.mutable_sample()->set_top_p(good);
    EXPECT_TRUE(ValidateSpec(spec).ok()) << good;
  }
  for (const double bad : {0.0, -0.5, 1.5, std::nan("")}) {
    spec.mutable_sample()->set_top_p(bad);
    EXPECT_EQ(FieldOf(ValidateSpec(spec)).value_or(""), "spec.sample.top_p") << bad;
  }
}

// Fits a mesh of cp=2 pp=2 tp=2.
v1::TrainingJobSpec ValidMesh() {
  v1::TrainingJobSpec spec = ValidLlama();
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_heads(8);
  model.set_kv_heads(4);
  model.set_hidden_size(64);
  model.set_layers(5);
  model.set_context_length(64);
  spec.mutable_data()->set_sequence_length(32);
  spec.mutable_mesh()->set_dp(2);
  spec.mutable_mesh()->set_cp(2);
  spec.mutable_mesh()->set_pp(2);
  spec.mutable_mesh()->set_tp(2);
  return spec;
}

TEST(SpecValidation, EveryAxisScheduleAndKindIsSupported) {
  struct Case {
    const char* name;
    std::function<void(v1::TrainingJobSpec&)> change;
  };
  const Case cases[] = {
      {"4d", [](auto&) {}},
      {"sequence_parallel", [](auto& s) { s.set_sequence_parallel(true); }},
      {"naive", [](auto& s) { s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_NAIVE); }},
      {"gpipe", [](auto& s) { s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_GPIPE); }},
      {"1f1b", [](auto& s) { s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_1F1B); }},
      {"interleaved",
       [](auto& s) { s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B); }},
      {"interleaved_by_hand",
       [](auto& s) {
         s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B);
         s.set_pipeline_chunks(2);
         for (const int layers : {1, 1, 2, 1}) s.add_chunk_layers(layers);
       }},
      {"zero_bubble",
       [](auto& s) { s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_ZERO_BUBBLE_H1); }},
      {"one_chunk", [](auto& s) { s.set_pipeline_chunks(1); }},
      {"all_gather", [](auto& s) { s.set_context_parallel(v1::CONTEXT_PARALLEL_KIND_ALL_GATHER); }},
      {"ulysses", [](auto& s) { s.set_context_parallel(v1::CONTEXT_PARALLEL_KIND_ULYSSES); }},
      {"check_replicated", [](auto& s) { s.set_check_replicated_gradients(true); }},
      {"before_reduce_without_cp",
       [](auto& s) {
         s.mutable_mesh()->set_cp(1);
         s.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
       }},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = ValidMesh();
    c.change(spec);
    EXPECT_TRUE(ValidateSpec(spec).ok()) << c.name << ": " << ValidateSpec(spec);
  }
}

TEST(SpecValidation, EachRuleOfALayoutNamesFieldValueAndRule) {
  struct Case {
    const char* name;
    std::function<void(v1::TrainingJobSpec&)> change;
    const char* message;
  };
  const Case cases[] = {
      {"nearest_lengths", [](auto& s) { s.mutable_data()->set_sequence_length(30); },
       "spec.data.sequence_length: 30: must be a multiple of 2 * spec.mesh.cp = 4; the nearest are "
       "28 and 32"},
      {"least_length", [](auto& s) { s.mutable_data()->set_sequence_length(2); },
       "spec.data.sequence_length: 2: must be a multiple of 2 * spec.mesh.cp = 4; the least is 4"},
      {"heads", [](auto& s) { s.mutable_mesh()->set_tp(3); },
       "spec.model.heads: 8: must be a multiple of spec.mesh.tp (3)"},
      {"heads_of_gpt2",
       [](auto& s) {
         s = Valid();
         s.mutable_mesh()->set_tp(2);
       },
       "spec.model.heads: 3: must be a multiple of spec.mesh.tp (2)"},
      {"kv_heads",
       [](auto& s) {
         s.mutable_model()->set_heads(12);
         s.mutable_model()->set_kv_heads(6);
         s.mutable_model()->set_hidden_size(48);
         s.mutable_mesh()->set_tp(4);
       },
       "spec.model.kv_heads: 6: must be a multiple or a divisor of spec.mesh.tp (4)"},
      {"intermediate_size", [](auto& s) { s.mutable_model()->set_intermediate_size(99); },
       "spec.model.intermediate_size: 99: must be a multiple of spec.mesh.tp (2)"},
      {"sequence_parallel",
       [](auto& s) {
         s.set_sequence_parallel(true);
         s.mutable_mesh()->set_cp(1);
         s.mutable_batch()->set_global_batch_size(6);
         s.mutable_data()->set_sequence_length(31);
       },
       "spec.sequence_parallel: true: the tokens of a micro-batch on a rank (1 sequences of 31) "
       "must be a multiple of spec.mesh.tp (2)"},
      {"ulysses_heads",
       [](auto& s) {
         s.set_context_parallel(v1::CONTEXT_PARALLEL_KIND_ULYSSES);
         s.mutable_mesh()->set_cp(8);
       },
       "spec.model.heads: 8: must be a multiple of spec.mesh.tp * spec.mesh.cp (2 * 8) with "
       "context_parallel ulysses"},
      {"ulysses_kv_heads",
       [](auto& s) {
         s.set_context_parallel(v1::CONTEXT_PARALLEL_KIND_ULYSSES);
         s.mutable_model()->set_heads(12);
         s.mutable_model()->set_kv_heads(6);
         s.mutable_model()->set_hidden_size(48);
       },
       "spec.model.kv_heads: 6: gives each tp rank 3, which must be a multiple or a divisor of "
       "spec.mesh.cp (2) with context_parallel ulysses"},
      {"chunks_out_of_range", [](auto& s) { s.set_pipeline_chunks(0); },
       "spec.pipeline_chunks: 0: must be 1 .. 1024"},
      {"chunks_of_1f1b", [](auto& s) { s.set_pipeline_chunks(2); },
       "spec.pipeline_chunks: 2: must be 1 unless pipeline_schedule is interleaved_1f1b"},
      {"chunks_of_interleaved",
       [](auto& s) {
         s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B);
         s.set_pipeline_chunks(1);
       },
       "spec.pipeline_chunks: 1: must be at least 2 with pipeline_schedule interleaved_1f1b"},
      {"interleaved_on_one_stage",
       [](auto& s) {
         s.set_pipeline_schedule(v1::PIPELINE_SCHEDULE_INTERLEAVED_1F1B);
         s.mutable_mesh()->set_pp(1);
       },
       "spec.pipeline_schedule: interleaved_1f1b: needs spec.mesh.pp of at least 2"},
      {"schedule_too_long",
       [](auto& s) {
         s.mutable_mesh()->set_dp(1);
         s.mutable_data()->set_sequence_length(4);
         s.mutable_batch()->set_global_batch_size(1 << 24);
         s.mutable_batch()->set_micro_batches(1 << 24);
       },
       "spec.batch.micro_batches: 16777216: spec.mesh.pp * spec.batch.micro_batches * "
       "spec.pipeline_chunks is above 16777216"},
      {"layers", [](auto& s) { s.mutable_mesh()->set_pp(6); },
       "spec.model.layers: 5: must be at least spec.mesh.pp * spec.pipeline_chunks (6 * 1)"},
      {"chunk_layers_sum",
       [](auto& s) {
         s.add_chunk_layers(3);
         s.add_chunk_layers(3);
       },
       "spec.chunk_layers: 3, 3: sums to 6, the model has 5 layers"},
      {"chunk_layers_count", [](auto& s) { s.add_chunk_layers(5); },
       "spec.chunk_layers: 5: has 1 counts for 2 chunks (stages * chunks)"},
      {"chunk_layers_below_1",
       [](auto& s) {
         s.add_chunk_layers(6);
         s.add_chunk_layers(-1);
       },
       "spec.chunk_layers: 6, -1: each must be at least 1"},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = ValidMesh();
    c.change(spec);
    const absl::Status status = ValidateSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name << status;
    EXPECT_EQ(status.message(), c.message) << c.name;
  }
}

TEST(SpecValidation, WhatThisVersionCannotDo) {
  struct Case {
    const char* field;
    std::function<void(v1::TrainingJobSpec&)> change;
  };
  const Case cases[] = {
      {"spec.model.dropout", [](auto& s) { s.mutable_model()->set_dropout(0.1); }},
      {"spec.optimizer.gradient_clipping",
       [](auto& s) {
         s.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
       }},
  };
  for (const Case& c : cases) {
    v1::TrainingJobSpec spec = ValidMesh();
    c.change(spec);
    const absl::Status status = ValidateSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << c.field << status;
    EXPECT_EQ(FieldOf(status), c.field) << status;
  }
}

TEST(SpecValidation, ZeroStagesAndTheirOptions) {
  v1::TrainingJobSpec spec = Valid();
  for (int stage = 0; stage <= 3; ++stage) {
    spec.set_zero_stage(stage);
    EXPECT_TRUE(ValidateSpec(spec).ok()) << ValidateSpec(spec);
  }
  spec.mutable_parameter_gather()->set_prefetch_units(3);
  EXPECT_TRUE(ValidateSpec(spec).ok()) << ValidateSpec(spec);
  spec.set_zero_stage(2);
  EXPECT_EQ(FieldOf(ValidateSpec(spec)), "spec.parameter_gather");
  spec.clear_parameter_gather();
  spec.set_gradient_reduction(v1::GRADIENT_REDUCTION_PER_MICRO_BATCH);
  EXPECT_TRUE(ValidateSpec(spec).ok()) << ValidateSpec(spec);
  spec.mutable_optimizer()->set_gradient_clipping(v1::GRADIENT_CLIPPING_BEFORE_REDUCE);
  EXPECT_EQ(FieldOf(ValidateSpec(spec)), "spec.gradient_reduction");
}

TEST(SpecValidation, InvalidComesBeforeUnsupported) {
  v1::TrainingJobSpec spec = Valid();
  spec.mutable_model()->set_dropout(0.1);
  EXPECT_EQ(ValidateSpec(spec).code(), absl::StatusCode::kUnimplemented);
  spec.mutable_batch()->set_global_batch_size(13);
  const absl::Status status = ValidateSpec(spec);
  EXPECT_EQ(FieldOf(status), "spec.batch.global_batch_size");
  EXPECT_NE(status.message().find("4 * 3 = 12"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tessera
