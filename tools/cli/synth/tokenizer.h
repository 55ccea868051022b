// The tokenizers of the project's two small chat models, which are part of the command, padded to
// any vocabulary. Must not know models.
#pragma once

#include <cstdint>
#include <string>

namespace command::synth {

// Return the contents of tokenizer.model, with as many pieces as `vocabulary`, and of
// tokenizer_config.json.
std::string padded_tokenizer(bool gemma, uint64_t vocabulary);
std::string tokenizer_config(bool gemma);

} // namespace command::synth
