// Elements of a snapshot as JSON objects. One function for each element writes the object's
// members; see element_json.h.
#include "format/element_json.h"

#include <array>
#include <cstdio>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include "format/pages.h"
#include "format/recurrent.h"
#include "format/sampling_json.h"
#include "format/spans.h"
#include "format/state/error.h"
#include "format/state/json_writer.h"
#include "format/texts.h"

namespace stasis::format {

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Writes the pairs for which `belongs` returns true as an object's members. If a forged file gives
// a name twice, only the first is written, as a JSON object must not repeat names.
template <typename Belongs>
void write_pairs(const char *name, const Pairs &pairs, JsonWriter &json, const Belongs &belongs) {
    std::set<std::string_view> written;
    json.key(name).begin_object();
    for (const auto &[key, value] : pairs) {
        if (belongs(key) && written.insert(key).second) {
            json.field(key, value);
        }
    }
    json.end_object();
}

void write_all_pairs(const char *name, const Pairs &pairs, JsonWriter &json) {
    write_pairs(name, pairs, json, [](const std::string &) { return true; });
}

// Writes the pairs of the config that belong to an element.
void write_config(const char *name, const State &state, Element element, JsonWriter &json) {
    write_pairs(name, state.model.config, json,
                [&](const std::string &key) { return config_element(key) == element; });
}

void write_digests(const char *name, const std::vector<Digest> &digests, JsonWriter &json) {
    json.key(name).begin_array();
    for (const Digest &digest : digests) {
        json.value(to_hex(digest));
    }
    json.end_array();
}

// Writes texts of tokens, which a log may name at each of its positions. All texts in one element
// together have at most kTextFactor times the bytes of the file, which no log of short tokens
// reaches. The rest is cut and replaced by a mark.
class TokenText {
  public:
    explicit TokenText(const Snapshot &snapshot)
        : texts_(snapshot.state().token_texts), left_(kTextFactor * snapshot.file_bytes()) {}

    // Writes the texts of tokens one after the other.
    void write(const char *name, std::span<const TokenEntry> tokens, JsonWriter &json) {
        json.key(name).begin_text();
        for (const TokenEntry &entry : tokens) {
            const std::string &text = token_text(texts_, entry.token);
            if (text.size() > left_) {
                left_ = 0;
                json.part("\u2026");
                break;
            }
            left_ -= text.size();
            json.part(text);
        }
        json.end_text();
    }

  private:
    static constexpr uint64_t kTextFactor = 4;

    const TokenTexts &texts_;
    uint64_t left_;
};

// Sizes of a group's pages in a file.
struct Kept {
    uint64_t stored = 0, runs = 0;
    uint64_t bytes = 0, stored_bytes = 0;
    uint64_t first = UINT64_MAX; // lowest position after which all pages are stored
};

// Walks from the last page to the first, so that `first` ends at the first gap.
Kept kept_of(const Snapshot &snapshot, size_t group) {
    const State &state = snapshot.state();
    Kept kept;
    for (uint64_t index = state.pages[group].size(); index-- > 0;) {
        const PageRecord &page = snapshot.page(group, index);
        if (page.runs.empty()) {
            continue;
        }
        ++kept.stored;
        kept.bytes += page_stored_bytes(state, group, page.valid);
        kept.runs += page.runs.size();
        for (const Run &run : page.runs) {
            kept.stored_bytes += run.stored_bytes;
        }
        if (kept.stored == state.pages[group].size() - index) {
            kept.first = index * state.page_positions;
        }
    }
    return kept;
}

void write_group(const State &state, size_t group, const Kept &kept, JsonWriter &json) {
    const uint64_t pages = state.pages[group].size();
    json.begin_object();
    json.array("layers", state.groups[group].layers);
    if (state.groups[group].kv_heads != 0) { // else the state's, in element 11
        json.field("kv_heads", state.groups[group].kv_heads);
        json.field("head_dim", state.groups[group].head_dim);
    }
    json.field("window", state.groups[group].window);
    json.field("pages", pages);
    json.field("stored", kept.stored);
    json.field("released", pages - kept.stored);
    json.key("first_position");
    kept.first == UINT64_MAX ? json.null() : json.value(kept.first);
    json.field("runs", kept.runs);
    json.field("bytes", kept.bytes);
    json.field("stored_bytes", kept.stored_bytes);
    json.end_object();
}

void write_page(const Snapshot &snapshot, size_t group, uint64_t index, JsonWriter &json) {
    const State &state = snapshot.state();
    const Page &page = state.pages[group][index];
    json.begin_object();
    json.field("group", group).field("index", index).field("valid", page.valid);
    json.field("bytes", page_stored_bytes(state, group, page.valid));
    json.field("digest", to_hex(page.digest));
    json.key("runs").begin_array();
    for (const Run &run : snapshot.page(group, index).runs) {
        json.begin_object();
        json.field("offset", run.offset).field("stored", run.stored_bytes);
        json.field("slots", run.slots).field("first", run.first).field("used", run.used);
        json.end_object();
    }
    json.end_array().end_object();
}

// Writes the recurrent layers and the states that the file lists; nothing if it has none.
void write_recurrent(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    const RecurrentShape &shape = state.recurrent;
    if (shape.layers.empty()) {
        return;
    }
    json.key("recurrent").begin_object();
    json.field("dtype", "f32").array("layers", shape.layers);
    json.field("key_heads", shape.key_heads).field("key_dim", shape.key_dim);
    json.field("value_heads", shape.value_heads).field("value_dim", shape.value_dim);
    json.field("taps", shape.taps).field("state_bytes", state_bytes(state));
    json.key("states").begin_array();
    for (size_t i = 0; i < state.states.size(); ++i) {
        const StateRef &ref = snapshot.layout().states[i];
        json.begin_object().field("position", state.states[i].position);
        json.field("digest", to_hex(state.states[i].digest));
        json.key("offset");
        ref.offset == 0 ? json.null() : json.value(ref.offset);
        json.field("stored", ref.stored_bytes).end_object();
    }
    json.end_array().end_object();
}

void kv_cache(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    std::vector<Kept> kept;
    uint64_t bytes = 0, stored_bytes = 0;
    for (size_t group = 0; group < state.groups.size(); ++group) {
        kept.push_back(kept_of(snapshot, group));
        bytes += kept.back().bytes;
        stored_bytes += kept.back().stored_bytes;
    }
    json.field("dtype", "bf16");
    json.field("keep", snapshot.keep() == Keep::full ? "full" : "none");
    json.field("bytes", bytes).field("stored_bytes", stored_bytes);
    json.key("groups").begin_array();
    for (size_t group = 0; group < state.groups.size(); ++group) {
        write_group(state, group, kept[group], json);
    }
    json.end_array();
    if (!state.sharing.empty()) {
        json.array("sharing", state.sharing);
    }
    write_recurrent(snapshot, json);
    json.key("pages").begin_array(); // by group, then by page index
    for (size_t group = 0; group < state.pages.size(); ++group) {
        for (uint64_t index = 0; index < state.pages[group].size(); ++index) {
            write_page(snapshot, group, index, json);
        }
    }
    json.end_array();
}

void token_embeddings(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    json.field("digest", to_hex(state.model.embeddings));
    json.field("vocabulary", state.vocabulary).field("hidden", state.hidden_size);
    write_config("config", state, Element::token_embeddings, json);
}

void write_layer_windows(const State &state, JsonWriter &json) {
    std::vector<std::optional<uint32_t>> windows(state.layers); // nothing: recurrent or sharing
    for (const LayerGroup &group : state.groups) {
        for (uint32_t layer : group.layers) {
            windows[layer] = group.window;
        }
    }
    json.key("layer_windows").begin_array();
    for (const std::optional<uint32_t> &window : windows) {
        window ? json.value(*window) : json.null();
    }
    json.end_array();
}

void positional_state(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    json.field("position", state.log.size());
    write_config("rope", state, Element::positional_state, json);
    write_layer_windows(state, json);
    json.field("window_retain", state.window_retain);
}

void token_buffer(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    uint64_t counts[4] = {};
    for (const TokenEntry &entry : state.log) {
        ++counts[static_cast<size_t>(entry.source)];
    }
    json.field("tokens", state.log.size());
    json.key("sources").begin_object();
    for (uint8_t source = 0; source < 4; ++source) {
        json.field(source_name(static_cast<TokenSource>(source)), counts[source]);
    }
    json.end_object();

    constexpr size_t kHexBytes = 4096; // bytes converted at a time
    // Bytes are written as well, because a character may be split over several tokens.
    json.key("texts").begin_array();
    for (const auto &[token, text] : state.token_texts) {
        json.begin_object().field("token", token).field("text", text);
        json.key("bytes").begin_text();
        for (size_t at = 0; at < text.size(); at += kHexBytes) {
            json.part(to_hex(std::string_view(text).substr(at, kHexBytes)));
        }
        json.end_text().end_object();
    }
    json.end_array();
    TokenText(snapshot).write("text", state.log, json);
}

void write_evicted(const State &state, JsonWriter &json) {
    json.key("evicted").begin_array();
    for (const Eviction &eviction : state.evictions) {
        json.begin_object().field("position", eviction.position);
        json.key("ranges").begin_array();
        for (const PositionRange &range : eviction.ranges) {
            json.begin_array().value(range.begin).value(range.end).end_array();
        }
        json.end_array().end_object();
    }
    json.end_array();
}

void attention_mask(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    json.field("rule", "causal");
    write_layer_windows(state, json);
    write_evicted(state, json);
    write_config("config", state, Element::attention_mask, json);
}

void model_config(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    json.field("architecture", state.model.architecture);
    json.field("model", to_hex(state.model.model));
    write_all_pairs("config", state.model.config, json);
    write_samplings(snapshot, json);
    json.field("sampling", state.sampling);
    each_session_number([&](const auto &number) { json.field(number.name, state.*number.member); });
}

void layer_norm(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    json.field("digest", to_hex(state.model.norms));
    write_config("config", state, Element::layer_norm, json);
}

void attention_weights(const Snapshot &snapshot, JsonWriter &json) {
    const ModelIdentity &model = snapshot.state().model;
    write_digests("attention", model.attention, json);
    write_digests("mlp", model.mlp, json);
    json.field("head", to_hex(model.head));
}

void logits(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    json.field("hidden", state.hidden.size());
    json.field("digest", to_hex(state.logits));
    json.field("row", snapshot.layout().logits_row != SectionRef{});
    json.key("top").begin_array();
    TokenText text(snapshot);
    for (const auto &[token, logit] : state.top) {
        json.begin_object().field("token", token).field("logit", logit);
        text.write("text", std::array{TokenEntry{token}}, json);
        json.end_object();
    }
    json.end_array();
}

void tokenizer(const Snapshot &snapshot, JsonWriter &json) {
    const ModelIdentity &model = snapshot.state().model;
    json.field("digest", to_hex(model.tokenizer)).field("type", model.tokenizer_type);
    write_all_pairs("rules", model.tokenizer_rules, json);
    json.field("chat_template", model.chat_template);
}

void write_section(const Section &section, JsonWriter &json) {
    char sum[33];
    const Frame &frame = section.frame;
    snprintf(sum, sizeof sum, "%016llx%016llx", static_cast<Number>(frame.checksum.high),
             static_cast<Number>(frame.checksum.low));
    json.begin_object();
    json.field("name", section_name(frame.kind)).field("offset", section.offset);
    json.field("commit", frame.sequence);
    json.field("stored", frame.stored_bytes).field("raw", frame.raw_bytes);
    json.field("codec", frame.codec == Codec::raw ? "raw" : "zstd").field("xxh3", sum);
    json.end_object();
}

// Writes the device profile; null if everything was computed under the contract.
void write_profile(const Profile &profile, JsonWriter &json) {
    json.key("profile");
    if (profile == Profile()) {
        json.null();
        return;
    }
    json.begin_object().field("id", profile.id).field("foreign", profile.foreign);
    json.key("chunks").begin_array();
    for (const ProfileChunk &chunk : profile.chunks) {
        json.begin_object().field("begin", chunk.begin).field("rows", chunk.rows);
        json.field("padded", chunk.padded).end_object();
    }
    json.end_array().end_object();
}

void kv_format(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    const ContractId &contract = state.contract;
    json.field("format", snapshot.format()).field("commit", snapshot.root().sequence);
    json.key("contract").begin_object().field("core", contract.core);
    json.field("kv", contract.kv).field("sampling", contract.sampling);
    if (contract.recurrent != 0) {
        json.field("recurrent", contract.recurrent);
    }
    if (contract.experts != 0) {
        json.field("experts", contract.experts);
    }
    json.end_object();
    write_profile(state.profile, json);
    json.field("dtype", "bf16").field("page_positions", state.page_positions);
    json.field("layers", state.layers).field("kv_heads", state.kv_heads);
    json.field("head_dim", state.head_dim);
    json.key("sections").begin_array();
    for (const Section &section : snapshot.sections()) {
        write_section(section, json);
    }
    json.end_array();
}

void prompt_meta(const Snapshot &snapshot, JsonWriter &json) {
    const State &state = snapshot.state();
    json.key("spans").begin_array();
    TokenText text(snapshot);
    for (Span span; span.end < state.log.size();) {
        span = span_from(state.log, span.end);
        json.begin_object().field("begin", span.begin).field("end", span.end);
        json.field("source", source_name(span.source)).field("role", role_name(span.role));
        json.field("turn_start", span.turn_start).key("sampling");
        span.source == TokenSource::sampled ? json.value(span.sampling) : json.null();
        json.field("tokens", span.end - span.begin);
        text.write("text", std::span(state.log).subspan(span.begin, span.end - span.begin), json);
        json.end_object();
    }
    json.end_array();
    json.field("pending_system", state.pending_system);
}

using Write = void (*)(const Snapshot &snapshot, JsonWriter &json);

const Write kElements[12] = {kv_cache,       token_embeddings, positional_state, token_buffer,
                             attention_mask, model_config,     layer_norm,       attention_weights,
                             logits,         tokenizer,        kv_format,        prompt_meta};

} // namespace

size_t element_json(const Snapshot &snapshot, uint32_t element, std::span<char> room) {
    if (element < 1 || element > std::size(kElements)) {
        fail(Status::invalid_argument, "element is %u, expected 1 to %zu", element,
             std::size(kElements));
    }
    JsonWriter json(room);
    json.begin_object().field("element", element);
    json.field("name", element_name(static_cast<Element>(element)));
    kElements[element - 1](snapshot, json);
    return json.end_object().length();
}

} // namespace stasis::format
