// The tokenizers of the project's two small chat models, which lie inside the command, padded to
// any vocabulary.
#pragma once

#include <cstdint>
#include <string>

namespace command::synth {

// Contents of tokenizer.model, with as many pieces as `vocabulary`, and of tokenizer_config.json.
std::string padded_tokenizer(bool gemma, uint64_t vocabulary);
std::string tokenizer_config(bool gemma);

} // namespace command::synth
