// The Big 8 + 4: the elements of a session's state, by number and name. Error messages, comparison,
// verification and inspection use these names.
#pragma once

#include <cstdint>
#include <string_view>

namespace stasis {

enum class Element : uint32_t {
    kv_cache = 1,
    token_embeddings = 2,
    positional_state = 3,
    token_buffer = 4,
    attention_mask = 5,
    model_config = 6,
    layer_norm = 7,
    attention_weights = 8,
    logits = 9,
    tokenizer = 10,
    kv_format = 11,
    prompt_meta = 12,
};

const char *element_name(Element element); // "KV cache", ...

// Returns the element that a pair of ModelIdentity::config belongs to, by words in its name.
Element config_element(std::string_view name);

} // namespace stasis
