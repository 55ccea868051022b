// Files of the two small chat models in tests/data, inside the command: the output of `synth` must
// not depend on where the command was installed. The build generates their definitions.
#pragma once

#include <string_view>

namespace command::synth {

std::string_view bundled_gemma_tokenizer(); // tokenizer.model
std::string_view bundled_llama_tokenizer();
std::string_view bundled_gemma_config(); // tokenizer_config.json
std::string_view bundled_llama_config();

} // namespace command::synth
