// Which keys of config.json there are besides sizes: what each family's mathematics supports of
// them, and which change nothing.
#ifndef TESSERA_WORKER_CHECKPOINT_HF_KEYS_H_
#define TESSERA_WORKER_CHECKPOINT_HF_KEYS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

// An option that changes the mathematics, of which only some values are supported.
struct HfFixedOption {
  absl::string_view key;
  absl::string_view values;  // JSON texts with a space between
};

absl::Span<const HfFixedOption> CommonFixedOptions();  // of every model_type
absl::Span<const HfFixedOption> Gpt2FixedOptions();
absl::Span<const HfFixedOption> RotaryFixedOptions();  // of llama and qwen2
absl::Span<const HfFixedOption> LlamaFixedOptions();   // of model_type llama alone
absl::Span<const HfFixedOption> Qwen2FixedOptions();

// Whether the key, in any family, has no influence on logits and gradients: metadata, text
// generation, the way a library runs the model. Dropout is among them, since a job says itself
// which it uses.
bool IsHarmlessHfKey(absl::string_view key);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_HF_KEYS_H_
