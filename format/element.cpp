// Elements of a snapshot as JSON objects, one function each; see element.h.
#include "format/element.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "format/error.h"
#include "format/pages.h"
#include "format/spans.h"
#include "format/texts.h"

namespace stasis::format {

namespace {

using Json = nlohmann::ordered_json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Json pairs_json(const Pairs &pairs) {
    Json json = Json::object();
    for (const auto &[name, value] : pairs) {
        json[name] = value;
    }
    return json;
}

// The pairs of the config that belong to an element.
Json config_json(const State &state, Element element) {
    Json json = Json::object();
    for (const auto &[name, value] : state.model.config) {
        if (config_element(name) == element) {
            json[name] = value;
        }
    }
    return json;
}

Json digests_json(const std::vector<Digest> &digests) {
    Json json = Json::array();
    for (const Digest &digest : digests) {
        json.push_back(to_hex(digest));
    }
    return json;
}

Json group_json(const Snapshot &snapshot, size_t group) {
    const State &state = snapshot.state();
    uint64_t stored = 0, bytes = 0, stored_bytes = 0, runs = 0;
    Json first = nullptr; // position from which on nothing was released
    for (uint64_t index = state.pages[group].size(); index-- > 0;) {
        const PageEntry &page = snapshot.page(group, index);
        if (page.runs.empty()) {
            continue;
        }
        ++stored;
        bytes += page_stored_bytes(state, group, page.valid);
        runs += page.runs.size();
        for (const Run &run : page.runs) {
            stored_bytes += run.stored_bytes;
        }
        if (stored == state.pages[group].size() - index) {
            first = index * state.page_positions;
        }
    }
    return {{"layers", state.groups[group].layers},
            {"window", state.groups[group].window},
            {"pages", state.pages[group].size()},
            {"stored", stored},
            {"released", state.pages[group].size() - stored},
            {"first_position", first},
            {"runs", runs},
            {"bytes", bytes},
            {"stored_bytes", stored_bytes}};
}

// What the file knows of each page, by group, then by page index.
Json pages_json(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    Json pages = Json::array();
    for (size_t group = 0; group < state.pages.size(); ++group) {
        for (uint64_t index = 0; index < state.pages[group].size(); ++index) {
            const Page &page = state.pages[group][index];
            Json runs = Json::array();
            for (const Run &run : snapshot.page(group, index).runs) {
                runs.push_back({{"offset", run.offset},
                                {"stored", run.stored_bytes},
                                {"slots", run.slots},
                                {"first", run.first},
                                {"used", run.used}});
            }
            pages.push_back({{"group", group},
                             {"index", index},
                             {"valid", page.valid},
                             {"bytes", page_stored_bytes(state, group, page.valid)},
                             {"digest", to_hex(page.digest)},
                             {"runs", runs}});
        }
    }
    return pages;
}

Json kv_cache(const Snapshot &snapshot) {
    Json groups = Json::array();
    uint64_t bytes = 0, stored_bytes = 0;
    for (size_t group = 0; group < snapshot.state().groups.size(); ++group) {
        groups.push_back(group_json(snapshot, group));
        bytes += groups.back()["bytes"].get<uint64_t>();
        stored_bytes += groups.back()["stored_bytes"].get<uint64_t>();
    }
    return {{"dtype", "bf16"},  {"keep", snapshot.keep() == Keep::full ? "full" : "none"},
            {"bytes", bytes},   {"stored_bytes", stored_bytes},
            {"groups", groups}, {"pages", pages_json(snapshot)}};
}

Json token_embeddings(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    return {{"digest", to_hex(state.model.embeddings)},
            {"vocabulary", state.vocabulary},
            {"hidden", state.hidden_size},
            {"config", config_json(state, Element::token_embeddings)}};
}

Json layer_windows(const State &state) {
    std::vector<uint32_t> windows(state.layers);
    for (const LayerGroup &group : state.groups) {
        for (uint32_t layer : group.layers) {
            windows[layer] = group.window;
        }
    }
    return windows;
}

Json positional_state(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    return {{"position", state.log.size()},
            {"rope", config_json(state, Element::positional_state)},
            {"layer_windows", layer_windows(state)},
            {"window_retain", state.window_retain}};
}

// The texts of the log's tokens; as bytes too, for a character may be split over several tokens.
Json texts_json(const State &state) {
    Json texts = Json::array();
    for (const auto &[token, text] : state.token_texts) {
        texts.push_back({{"token", token}, {"text", text}, {"bytes", to_hex(text)}});
    }
    return texts;
}

Json token_buffer(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    uint64_t counts[4] = {};
    for (const TokenEntry &entry : state.log) {
        ++counts[static_cast<size_t>(entry.source)];
    }
    Json sources = Json::object();
    for (uint8_t source = 0; source < 4; ++source) {
        sources[source_name(static_cast<TokenSource>(source))] = counts[source];
    }
    return {{"tokens", state.log.size()},
            {"sources", sources},
            {"texts", texts_json(state)},
            {"text", log_text(state, 0, state.log.size())}};
}

Json evicted_json(const State &state) {
    Json all = Json::array();
    for (const Eviction &eviction : state.evictions) {
        Json ranges = Json::array();
        for (const PositionRange &range : eviction.ranges) {
            ranges.push_back({range.begin, range.end});
        }
        all.push_back({{"position", eviction.position}, {"ranges", ranges}});
    }
    return all;
}

Json attention_mask(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    return {{"rule", "causal"},
            {"layer_windows", layer_windows(state)},
            {"evicted", evicted_json(state)},
            {"config", config_json(state, Element::attention_mask)}};
}

Json sampling_json(const Sampling &sampling) {
    Json bias = Json::array();
    for (const auto &[token, value] : sampling.bias) {
        // JSON has no infinity; it stands for a forbidden token.
        bias.push_back({{"token", token}, {"bias", std::isfinite(value) ? Json(value) : Json()}});
    }
    const SamplingV2 &v2 = sampling.v2;
    return {{"seed", sampling.seed},
            {"temperature", sampling.temperature},
            {"top_k", sampling.top_k},
            {"top_p", sampling.top_p},
            {"min_p", sampling.min_p},
            {"repetition_penalty", sampling.repetition_penalty},
            {"frequency_penalty", sampling.frequency_penalty},
            {"presence_penalty", sampling.presence_penalty},
            {"penalty_window", sampling.penalty_window},
            {"bias", bias},
            {"typical_p", v2.typical_p},
            {"top_n_sigma", v2.top_n_sigma},
            {"xtc_probability", v2.xtc_probability},
            {"xtc_threshold", v2.xtc_threshold},
            {"dry_multiplier", v2.dry_multiplier},
            {"dry_base", v2.dry_base},
            {"dry_allowed_length", v2.dry_allowed_length},
            {"dry_range", v2.dry_range},
            {"dry_breakers", v2.dry_breakers},
            {"min_keep", v2.min_keep}};
}

Json model_config(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    Json samplings = Json::array();
    for (const Sampling &sampling : state.samplings) {
        samplings.push_back(sampling_json(sampling));
    }
    return {{"architecture", state.model.architecture},
            {"model", to_hex(state.model.model)},
            {"config", pairs_json(state.model.config)},
            {"samplings", samplings},
            {"sampling", state.sampling},
            {"capacity", state.capacity},
            {"window_retain", state.window_retain},
            {"tracking", state.tracking}};
}

Json layer_norm(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    return {{"digest", to_hex(state.model.norms)},
            {"config", config_json(state, Element::layer_norm)}};
}

Json attention_weights(const Snapshot &snapshot) {
    const ModelIdentity &model = snapshot.state().model;
    return {{"attention", digests_json(model.attention)},
            {"mlp", digests_json(model.mlp)},
            {"head", to_hex(model.head)}};
}

Json logits(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    Json top = Json::array();
    for (const auto &[token, logit] : state.top) {
        top.push_back({{"token", token},
                       {"logit", std::isfinite(logit) ? Json(logit) : Json()},
                       {"text", token_text(state.token_texts, token)}});
    }
    const bool row = snapshot.layout().logits_row != SectionRef{};
    return {{"hidden", state.hidden.size()},
            {"digest", to_hex(state.logits)},
            {"row", row},
            {"top", top}};
}

Json tokenizer(const Snapshot &snapshot) {
    const ModelIdentity &model = snapshot.state().model;
    return {{"digest", to_hex(model.tokenizer)},
            {"type", model.tokenizer_type},
            {"rules", pairs_json(model.tokenizer_rules)},
            {"chat_template", model.chat_template}};
}

Json kv_format(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    Json sections = Json::array();
    for (const Section &section : snapshot.sections()) {
        char sum[33];
        const Frame &frame = section.frame;
        snprintf(sum, sizeof sum, "%016llx%016llx",
                 static_cast<unsigned long long>(frame.checksum.high),
                 static_cast<unsigned long long>(frame.checksum.low));
        sections.push_back({{"name", section_name(frame.kind)},
                            {"offset", section.offset},
                            {"commit", frame.sequence},
                            {"stored", frame.stored_bytes},
                            {"raw", frame.raw_bytes},
                            {"codec", frame.codec == Codec::raw ? "raw" : "zstd"},
                            {"xxh3", sum}});
    }
    const ContractId &contract = state.contract;
    return {{"format", snapshot.format()},
            {"commit", snapshot.root().sequence},
            {"contract",
             {{"core", contract.core}, {"kv", contract.kv}, {"sampling", contract.sampling}}},
            {"dtype", "bf16"},
            {"page_positions", state.page_positions},
            {"layers", state.layers},
            {"kv_heads", state.kv_heads},
            {"head_dim", state.head_dim},
            {"sections", sections}};
}

Json prompt_meta(const Snapshot &snapshot) {
    const State &state = snapshot.state();
    Json spans = Json::array();
    for (const Span &span : log_spans(state.log)) {
        const bool sampled = span.source == TokenSource::sampled;
        spans.push_back({{"begin", span.begin},
                         {"end", span.end},
                         {"source", source_name(span.source)},
                         {"role", role_name(span.role)},
                         {"turn_start", span.turn_start},
                         {"sampling", sampled ? Json(span.sampling) : Json()},
                         {"tokens", span.end - span.begin},
                         {"text", log_text(state, span.begin, span.end)}});
    }
    return {{"spans", spans}, {"pending_system", state.pending_system}};
}

using ToJson = Json (*)(const Snapshot &snapshot);

const ToJson kElements[12] = {kv_cache,       token_embeddings, positional_state, token_buffer,
                              attention_mask, model_config,     layer_norm,       attention_weights,
                              logits,         tokenizer,        kv_format,        prompt_meta};

} // namespace

std::string element_json(const Snapshot &snapshot, uint32_t element) {
    if (element < 1 || element > std::size(kElements)) {
        fail(Status::invalid_argument, "element is %u, expected 1 to %zu", element,
             std::size(kElements));
    }
    Json json = {{"element", element}, {"name", element_name(static_cast<Element>(element))}};
    json.update(kElements[element - 1](snapshot));
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace stasis::format
