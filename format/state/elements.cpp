// Names of the elements, and the element of a pair of the config; see elements.h.
#include "format/state/elements.h"

namespace stasis {

const char *element_name(Element element) {
    switch (element) {
    case Element::kv_cache:
        return "KV cache";
    case Element::token_embeddings:
        return "token embeddings";
    case Element::positional_state:
        return "positional state";
    case Element::token_buffer:
        return "input token buffer";
    case Element::attention_mask:
        return "attention mask";
    case Element::model_config:
        return "model config snapshot";
    case Element::layer_norm:
        return "LayerNorm state";
    case Element::attention_weights:
        return "attention module weights";
    case Element::logits:
        return "logits";
    case Element::tokenizer:
        return "tokenizer state";
    case Element::kv_format:
        return "KV format version";
    case Element::prompt_meta:
        return "prompt injection meta";
    }
    return "";
}

// Returns the element of the first of these words that the name contains: the order decides between
// several.
Element config_element(std::string_view name) {
    const auto speaks_of = [name](std::string_view word) {
        return name.find(word) != std::string_view::npos;
    };
    if (speaks_of("rope")) {
        return Element::positional_state;
    }
    if (speaks_of("window")) {
        return Element::attention_mask;
    }
    if (speaks_of("norm")) {
        return Element::layer_norm;
    }
    return speaks_of("embedding") ? Element::token_embeddings : Element::model_config;
}

} // namespace stasis
