// Comparing two snapshots, part by part, the most important first; see compare.h. Each function
// returns the first difference of its part, or nothing.
#include "format/compare.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <optional>

#include "format/compare_recurrent.h"
#include "format/element_json.h"
#include "format/fingerprint.h"
#include "format/pages.h"
#include "format/spans.h"

namespace stasis::format {

namespace {

using Found = std::optional<Difference>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// Returns a difference in the element, with its name before the message.
Difference differs(Element element, std::string message) {
    Difference difference;
    difference.equal = false;
    difference.element = static_cast<uint32_t>(element);
    difference.message = std::string(element_name(element)) + ": " + std::move(message);
    return difference;
}

std::string text(const std::string &value) {
    return value;
}
std::string text(const Digest &digest) {
    return to_hex(digest).substr(0, 16);
}
template <class Number> std::string text(Number value) {
    return std::to_string(value);
}

// Returns a difference if the values differ, with both in the message.
template <class T> Found value(Element element, const char *name, const T &a, const T &b) {
    if (a == b) {
        return std::nullopt;
    }
    return differs(element, std::string(name) + " differs: " + text(a) + " and " + text(b));
}

// Returns the first of the findings.
Found first(std::initializer_list<Found> findings) {
    for (const Found &found : findings) {
        if (found) {
            return found;
        }
    }
    return std::nullopt;
}

// Returns the first pair that differs; `element` returns the element that a pair belongs to.
Found pairs(Element (*element)(std::string_view name), const Pairs &a, const Pairs &b) {
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
        if (i >= a.size() || i >= b.size() || a[i] != b[i]) {
            const auto show = [i](const Pairs &from) {
                return i < from.size() ? from[i].first + " = " + from[i].second : "nothing";
            };
            return differs(element(i < a.size() ? a[i].first : b[i].first),
                           show(a) + " and " + show(b));
        }
    }
    return std::nullopt;
}

Found layers(const char *name, const std::vector<Digest> &a, const std::vector<Digest> &b) {
    for (size_t layer = 0; layer < std::min(a.size(), b.size()); ++layer) {
        if (Found found = value(Element::attention_weights, name, a[layer], b[layer])) {
            found->layer = static_cast<uint32_t>(layer);
            found->message += " (layer " + std::to_string(layer) + ")";
            return found;
        }
    }
    return value(Element::model_config, "number of layers", a.size(), b.size());
}

Found groups(const State &a, const State &b) {
    for (size_t group = 0; group < std::min(a.groups.size(), b.groups.size()); ++group) {
        const LayerGroup &x = a.groups[group];
        const LayerGroup &y = b.groups[group];
        Found found = value(Element::attention_mask, "window", x.window, y.window);
        if (!found && x.layers != y.layers) {
            found = differs(Element::attention_mask, "layers of the same window differ");
        }
        if (!found) {
            found = first({value(Element::model_config, "KV heads of a layer group",
                                 a.kv_heads_of(group), b.kv_heads_of(group)),
                           value(Element::model_config, "head_dim of a layer group",
                                 a.head_dim_of(group), b.head_dim_of(group))});
        }
        if (found) {
            found->layer = x.layers[0];
            return found;
        }
    }
    return value(Element::attention_mask, "number of windows", a.groups.size(), b.groups.size());
}

// Returns a difference at the first layer that uses another's keys and values in one state only.
Found sharing_layers(const State &a, const State &b) {
    if (a.sharing == b.sharing) {
        return std::nullopt;
    }
    const auto [x, y] =
        std::mismatch(a.sharing.begin(), a.sharing.end(), b.sharing.begin(), b.sharing.end());
    const bool of_first = y == b.sharing.end() || (x != a.sharing.end() && *x < *y);
    const uint32_t layer = of_first ? *x : *y;
    Difference difference =
        differs(Element::model_config, "sharing layers differ: layer " + std::to_string(layer) +
                                           " uses another layer's keys and values in the " +
                                           (of_first ? "first" : "second") + " alone");
    difference.layer = layer;
    return difference;
}

Found recurrent_layers(const State &a, const State &b) {
    if (a.recurrent == b.recurrent) {
        return std::nullopt;
    }
    const auto show = [](const RecurrentShape &shape) {
        return std::to_string(shape.layers.size()) + " layers of " +
               std::to_string(shape.state_size()) + " numbers, " +
               std::to_string(shape.value_heads) + " value heads";
    };
    return differs(Element::model_config,
                   "recurrent layers differ: " + show(a.recurrent) + " and " + show(b.recurrent));
}

Found identity(const State &a, const State &b) {
    const ModelIdentity &x = a.model;
    const ModelIdentity &y = b.model;
    const auto tokenizer = [](std::string_view) { return Element::tokenizer; };
    return first({
        value(Element::kv_format, "core contract", a.contract.core, b.contract.core),
        value(Element::kv_format, "KV contract", a.contract.kv, b.contract.kv),
        value(Element::kv_format, "sampling contract", a.contract.sampling, b.contract.sampling),
        value(Element::kv_format, "contract of recurrent layers", a.contract.recurrent,
              b.contract.recurrent),
        value(Element::kv_format, "contract of experts", a.contract.experts, b.contract.experts),
        value(Element::kv_format, "device profile", a.profile.id, b.profile.id),
        value(Element::model_config, "architecture", x.architecture, y.architecture),
        pairs(config_element, x.config, y.config),
        value(Element::model_config, "layers", a.layers, b.layers),
        value(Element::model_config, "KV heads", a.kv_heads, b.kv_heads),
        value(Element::model_config, "head_dim", a.head_dim, b.head_dim),
        value(Element::model_config, "hidden size", a.hidden_size, b.hidden_size),
        value(Element::model_config, "vocabulary", a.vocabulary, b.vocabulary),
        value(Element::token_embeddings, "digest", x.embeddings, y.embeddings),
        value(Element::layer_norm, "digest", x.norms, y.norms),
        layers("attention digest", x.attention, y.attention),
        layers("MLP digest", x.mlp, y.mlp),
        value(Element::attention_weights, "output head", x.head, y.head),
        value(Element::model_config, "model digest", x.model, y.model),
        value(Element::tokenizer, "digest", x.tokenizer, y.tokenizer),
        value(Element::tokenizer, "type", x.tokenizer_type, y.tokenizer_type),
        pairs(tokenizer, x.tokenizer_rules, y.tokenizer_rules),
        value(Element::tokenizer, "chat template", x.chat_template, y.chat_template),
        value(Element::kv_format, "positions in a page", a.page_positions, b.page_positions),
        recurrent_layers(a, b),
        sharing_layers(a, b),
        groups(a, b),
    });
}

Found tokens(const State &a, const State &b) {
    const size_t shorter = std::min(a.log.size(), b.log.size());
    for (size_t i = 0; i < shorter; ++i) {
        if (Found found = value(Element::token_buffer, "token", a.log[i].token, b.log[i].token)) {
            found->position = i;
            return found;
        }
    }
    Found found = value(Element::token_buffer, "number of tokens", a.log.size(), b.log.size());
    if (found) {
        found->position = shorter;
    }
    return found;
}

// Returns a difference at the lowest position at which evictions differ: from it on one state sees
// positions that the other does not.
Found evictions(const State &a, const State &b) {
    const size_t count = std::max(a.evictions.size(), b.evictions.size());
    for (size_t i = 0; i < count; ++i) {
        const auto show = [i](const State &of) -> std::string {
            if (i >= of.evictions.size()) {
                return "nothing";
            }
            std::string ranges;
            for (const PositionRange &range : of.evictions[i].ranges) {
                ranges +=
                    " [" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
            }
            return "at " + std::to_string(of.evictions[i].position) + ranges;
        };
        if (show(a) != show(b)) {
            Difference difference = differs(Element::attention_mask,
                                            "evictions differ: " + show(a) + " and " + show(b));
            difference.position = UINT64_MAX;
            for (const State *of : {&a, &b}) {
                if (i < of->evictions.size()) {
                    difference.position = std::min(difference.position, of->evictions[i].position);
                }
            }
            return difference;
        }
    }
    return std::nullopt;
}

// Returns the fingerprints of a page. They are computed if the file has the page itself.
std::vector<uint32_t> prints_of(const Snapshot &snapshot, size_t group, uint64_t index) {
    const PageRecord &entry = snapshot.page(group, index);
    if (entry.runs.empty()) {
        return entry.fingerprints;
    }
    const std::vector<uint16_t> data = snapshot.read_packed(group, index);
    return page_fingerprints(snapshot.state(), group, entry.valid, data.data(), entry.valid);
}

// Sets the position and the layer of a difference to the first slot and the first layer whose
// fingerprints differ.
void compare_prints(const Snapshot &a, const Snapshot &b, size_t group, uint64_t index,
                    Difference &difference) {
    const std::vector<uint32_t> x = prints_of(a, group, index);
    const std::vector<uint32_t> y = prints_of(b, group, index);
    if (x.empty() || y.empty()) {
        difference.message += "; the page is not in one of the files, so only its first position "
                              "and layer are named";
        return;
    }
    const auto first_from = [&](size_t begin) {
        const auto at = static_cast<ptrdiff_t>(begin);
        return static_cast<size_t>(std::mismatch(x.begin() + at, x.end(), y.begin() + at).first -
                                   x.begin());
    };
    const size_t valid = a.page(group, index).valid;
    const std::vector<uint32_t> &layers = a.state().groups[group].layers;
    difference.position += std::min(first_from(0), valid - 1);
    difference.layer = layers[std::min(first_from(valid) - valid, layers.size() - 1)];
    difference.message += ", told by fingerprints";
}

// Returns the difference of lowest position in two pages of a group; with it the lowest row, which
// gives layer, part and head.
Difference page_values(const Snapshot &a, const Snapshot &b, size_t group, uint64_t index) {
    const State &state = a.state();
    const std::vector<uint32_t> &layers = state.groups[group].layers;
    const size_t heads = state.kv_heads_of(group), dim = state.head_dim_of(group);
    const uint64_t begin = index * state.page_positions;
    Difference difference = differs(Element::kv_cache, "page digests differ");
    difference.position = begin;
    difference.layer = layers[0];

    // Without the numbers of both pages only their fingerprints can be compared.
    if (!a.stored(group, index) || !b.stored(group, index)) {
        compare_prints(a, b, group, index, difference);
        return difference;
    }

    const std::vector<uint16_t> x = a.read_packed(group, index), y = b.read_packed(group, index);
    const size_t valid = a.page(group, index).valid; // of both: their logs are of one length
    size_t lowest = valid;
    // Later rows are searched only below the lowest slot that has been found so far.
    for (size_t row = 0; row < page_rows(state, group); ++row) {
        const size_t row_elements = valid * dim;
        const uint16_t *row_x = x.data() + row * row_elements;
        const uint16_t *row_y = y.data() + row * row_elements;
        const auto at = std::mismatch(row_x, row_x + lowest * dim, row_y).first - row_x;
        const size_t slot = static_cast<size_t>(at) / dim;
        if (slot < lowest) {
            lowest = slot;
            difference.position = begin + slot;
            difference.layer = layers[row / (2 * heads)];
            difference.head = static_cast<uint32_t>(row % heads);
            char bits[64];
            snprintf(bits, sizeof bits, "%s differ: bf16 bits %04x and %04x",
                     row / heads % 2 == 0 ? "keys" : "values", row_x[at], row_y[at]);
            difference.message = std::string(element_name(Element::kv_cache)) + ": " + bits;
        }
    }
    return difference;
}

// Groups share positions, so the page index is compared before the group.
Found keys_and_values(const Snapshot &a, const Snapshot &b, const Watch &watch) {
    const State &x = a.state();
    const State &y = b.state();
    const uint64_t count = page_count(x.log.size(), x.page_positions);
    for (uint64_t index = 0; index < count; ++index) {
        watch.step(index, count);
        Found lowest;
        for (size_t group = 0; group < x.groups.size(); ++group) {
            if (x.pages[group][index].digest == y.pages[group][index].digest) {
                continue;
            }
            const Difference found = page_values(a, b, group, index);
            if (!lowest || std::pair(found.position, found.layer) <
                               std::pair(lowest->position, lowest->layer)) {
                lowest = found;
            }
        }
        if (lowest) {
            return lowest;
        }
    }
    return std::nullopt;
}

Found logits(const State &a, const State &b) {
    Found found = a.hidden == b.hidden ? value(Element::logits, "digest", a.logits, b.logits)
                                       : differs(Element::logits, "final hidden states differ");
    if (!found && a.top != b.top) {
        found = differs(Element::logits, "best logits differ");
    }
    if (found && !a.log.empty()) {
        found->position = a.log.size() - 1;
    }
    return found;
}

// Compares sources, turns and settings of tokens, texts and pending system text. Both logs must
// have the same length.
Found origins(const State &a, const State &b) {
    for (size_t i = 0; i < a.log.size(); ++i) {
        const TokenEntry &x = a.log[i];
        const TokenEntry &y = b.log[i];
        if (x != y) {
            const auto show = [](const TokenEntry &entry) {
                char bits[64];
                snprintf(bits, sizeof bits, " (turn byte %02x, settings %u)", entry.turn,
                         entry.sampling);
                return source_name(entry.source) + (" of " + std::string(role_name(entry.role()))) +
                       bits;
            };
            Difference difference =
                differs(Element::prompt_meta, "origin differs: " + show(x) + " and " + show(y));
            difference.position = i;
            return difference;
        }
    }
    if (a.token_texts != b.token_texts) {
        return differs(Element::tokenizer, "texts of tokens differ");
    }
    return value(Element::prompt_meta, "pending system text", a.pending_system, b.pending_system);
}

Found settings(const State &a, const State &b) {
    if (a.samplings != b.samplings || a.sampling != b.sampling) {
        return differs(Element::model_config, "sampling settings differ");
    }
    if (a.profile != b.profile) {
        return differs(Element::kv_format, "positions computed under a device profile differ");
    }
    Found found;
    each_session_number([&](const auto &number) {
        if (!found) {
            found = value(Element::model_config, number.name, a.*number.member, b.*number.member);
        }
    });
    return found;
}

} // namespace

Difference compare(const Snapshot &a, const Snapshot &b, const Watch &watch) {
    const State &x = a.state();
    const State &y = b.state();
    Found found = identity(x, y);
    if (!found) {
        found = tokens(x, y);
    }
    if (!found) {
        found = evictions(x, y);
    }
    if (!found) {
        found = keys_and_values(a, b, watch);
        const Found states = compare_states(a, b);
        if (states && (!found || states->position < found->position)) {
            found = states;
        }
    }
    if (!found) {
        // Geometry and tokens are equal, so the rest can be compared position by position.
        found = first({logits(x, y), origins(x, y), settings(x, y)});
    }
    return found.value_or(Difference{});
}

} // namespace stasis::format
