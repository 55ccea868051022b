// A session's state as plain data: digest, export, and whether a stored one is this model's. The
// way back is restore.cpp.
#include <algorithm>

#include "format/state/elements.h"
#include "runtime/compute/forward.h"
#include "runtime/kv/page_staging.h"
#include "runtime/session/session.h"

namespace stasis {

namespace {

constexpr size_t kTop = 64; // best logits kept in a snapshot

ContractId contract(const std::vector<Sampling> &samplings) {
    return {kernels::kContractCore, kernels::kContractKv, sampling_version(samplings)};
}

Digest digest_row(std::span<const float> row) {
    return Sha256().bytes(row.data(), row.size_bytes()).finish();
}

[[noreturn]] void refuse(Element element, const std::string &where, const std::string &stored,
                         const std::string &model) {
    const std::string name = element_name(element);
    fail(Status::model_mismatch, "%s differ%s: %sthe snapshot has %s, the model has %s",
         name.c_str(), name.back() == 's' ? "" : "s", where.c_str(), stored.c_str(), model.c_str());
}

void check_digest(Element element, const char *where, const Digest &stored, const Digest &model) {
    if (stored != model) {
        refuse(element, where, to_hex(stored), to_hex(model));
    }
}

// Names and values, the element of each told by `element_of`.
template <typename ElementOf>
void check_pairs(const ElementOf &element_of,
                 const std::vector<std::pair<std::string, std::string>> &stored,
                 const std::vector<std::pair<std::string, std::string>> &model) {
    const auto text = [](const auto &pairs, size_t i) {
        return i < pairs.size() ? pairs[i].first + " = " + pairs[i].second : "nothing";
    };
    for (size_t i = 0; i < std::max(stored.size(), model.size()); ++i) {
        if (text(stored, i) != text(model, i)) {
            const std::string &name = i < model.size() ? model[i].first : stored[i].first;
            refuse(element_of(name), "", text(stored, i), text(model, i));
        }
    }
}

void check_layers(const char *what, const std::vector<Digest> &stored,
                  const std::vector<Digest> &model) {
    for (size_t layer = 0; layer < std::min(stored.size(), model.size()); ++layer) {
        const std::string where = "layer " + std::to_string(layer) + what;
        check_digest(Element::attention_weights, where.c_str(), stored[layer], model[layer]);
    }
}

} // namespace

void check_identity(const ModelIdentity &stored, const ModelIdentity &model) {
    if (stored.architecture != model.architecture) {
        refuse(Element::model_config, "architecture: ", stored.architecture, model.architecture);
    }
    check_pairs(config_element, stored.config, model.config);
    check_digest(Element::token_embeddings, "", stored.embeddings, model.embeddings);
    check_digest(Element::layer_norm, "", stored.norms, model.norms);
    check_layers(": ", stored.attention, model.attention);
    check_layers(", its MLP: ", stored.mlp, model.mlp);
    check_digest(Element::logits, "output head: ", stored.head, model.head);
    check_digest(Element::model_config, "identity: ", stored.model, model.model);
    const auto tokenizer = [](std::string_view) { return Element::tokenizer; };
    check_pairs(tokenizer, stored.tokenizer_rules, model.tokenizer_rules);
    check_digest(Element::tokenizer, "", stored.tokenizer, model.tokenizer);
    if (stored.chat_template != model.chat_template) {
        refuse(Element::tokenizer, "chat template: ", stored.chat_template, model.chat_template);
    }
}

const Digest &Session::digest_of(size_t group, size_t page) {
    PageTable &table = pages_[group];
    const auto valid = static_cast<uint32_t>(std::min<uint64_t>(kPage, log_.size() - page * kPage));
    if (table[page].digested != valid) {
        const PageShape &shape = model_->pool->shape(static_cast<uint32_t>(group));
        PageEntry &entry = table.mutate(page);
        PageStaging staging(*model_->pool);
        const uint16_t *numbers = staging.read_now(entry.page);
        entry.digest = page_digest(static_cast<uint32_t>(group), page, numbers, shape.rows(), kPage,
                                   valid, shape.head_dim);
        entry.digested = valid;
    }
    return table[page].digest;
}

Digest Session::digest() {
    if (!log_.empty()) {
        WorkspaceLease work(*model_);
        require_hidden(*work);
    }
    StateParts parts;
    parts.contract_core = kernels::kContractCore;
    parts.contract_kv = kernels::kContractKv;
    parts.profile = profile_.id;
    parts.model = model_->identity.model;
    parts.position = log_.size();
    Sha256 tokens;
    for (uint64_t i = 0; i < log_.size(); ++i) {
        tokens.u32(log_[i].token);
    }
    parts.tokens = tokens.finish();
    for (const Evictions::Event &eviction : evictions_.events()) {
        for (const PositionRange &range : eviction->ranges) {
            parts.evicted.push_back({eviction->position, range.begin, range.end});
        }
    }
    for (size_t group = 0; group < pages_.size(); ++group) {
        parts.windows.push_back(model_->groups[group].window);
        std::vector<Digest> &pages = parts.pages.emplace_back();
        for (size_t page = 0; page < pages_[group].size(); ++page) {
            pages.push_back(digest_of(group, page));
        }
    }
    if (!log_.empty()) {
        parts.hidden = hidden_;
    }
    return state_digest(parts);
}

// The log, the texts of its tokens, and the settings that it refers to.
void Session::export_log(State &state) const {
    const Config &config = model_->config;
    // Only settings that the log still refers to, in order of first use, and those in force.
    std::vector<uint32_t> renumbered(samplings_.size(), UINT32_MAX);
    std::vector<bool> used(config.vocabulary, false);
    state.log.reserve(log_.size());
    for (uint64_t i = 0; i < log_.size(); ++i) {
        TokenEntry entry = log_[i];
        if (entry.source == TokenSource::sampled) {
            uint32_t &index = renumbered[entry.sampling];
            if (index == UINT32_MAX) {
                index = static_cast<uint32_t>(state.samplings.size());
                state.samplings.push_back(samplings_[entry.sampling]);
            }
            entry.sampling = static_cast<uint16_t>(index);
        }
        used[entry.token] = true;
        state.log.push_back(entry);
    }
    for (uint32_t token = 0; model_->tokenizer != nullptr && token < config.vocabulary; ++token) {
        if (used[token]) {
            state.token_texts.emplace_back(token, model_->tokenizer->piece_bytes(token));
        }
    }
    const auto current = std::find(state.samplings.begin(), state.samplings.end(), sampling_);
    state.sampling = static_cast<uint32_t>(current - state.samplings.begin());
    if (current == state.samplings.end()) {
        state.samplings.push_back(sampling_);
    }
    state.contract = contract(state.samplings);
}

namespace {

// `held` keeps the pages.
FetchedPages fetch_pages(const PagePool &pool, const std::shared_ptr<std::vector<PageTable>> &held,
                         std::span<const PageName> names) {
    struct Way {
        std::shared_ptr<std::vector<PageTable>> held;
        PageStaging staging; // gone before them

        Way(const PagePool &from, std::shared_ptr<std::vector<PageTable>> pages)
            : held(std::move(pages)), staging(from) {}
    };
    size_t bytes = 0;
    for (const PageName &name : names) {
        bytes += pool.shape(static_cast<uint32_t>(name.group)).bytes();
    }
    const auto way = std::make_shared<Way>(pool, held);
    way->staging.fit(bytes);
    FetchedPages fetched;
    fetched.numbers.reserve(names.size());
    for (const PageName &name : names) {
        fetched.numbers.push_back(way->staging.read((*held)[name.group][name.index].page));
    }
    fetched.wait = [way] { way->staging.finish(); };
    return fetched;
}

} // namespace

void Session::export_pages(State &state) {
    bool far = false;
    for (size_t group = 0; group < pages_.size(); ++group) {
        std::vector<Page> &pages = state.pages.emplace_back();
        for (size_t index = 0; index < pages_[group].size(); ++index) {
            const PageEntry &entry = pages_[group][index];
            const uint64_t valid = std::min<uint64_t>(kPage, log_.size() - index * kPage);
            pages.push_back({static_cast<uint32_t>(valid), digest_of(group, index),
                             entry.page ? model_->pool->numbers(entry.page) : nullptr,
                             entry.exported_slots, entry.exported});
            pages.back().far = entry.page && pages.back().data == nullptr;
            far |= pages.back().far;
        }
        if (!pages.empty() && pages.back().valid != pages.back().earlier_valid) {
            PageEntry &last = pages_[group].mutate(pages.size() - 1);
            last.exported = last.digest;
            last.exported_slots = last.digested;
        }
    }
    const auto held = std::make_shared<std::vector<PageTable>>(pages_); // pins the pages
    state.storage.push_back(held);
    if (far) {
        const PagePool &pool = *model_->pool;
        state.fetch = [&pool, held](std::span<const PageName> names) {
            return fetch_pages(pool, held, names);
        };
    }
}

State Session::export_state() {
    State state;
    state.digest = digest(); // makes sure of the hidden state
    const Config &config = model_->config;
    state.model = model_->identity;
    state.layers = config.layers;
    state.kv_heads = config.kv_heads;
    state.head_dim = config.head_dim;
    state.hidden_size = config.hidden;
    state.vocabulary = config.vocabulary;
    state.page_positions = kPage;
    state.groups = model_->groups;
    state.profile = profile_;
    state.capacity = capacity_;
    state.window_retain = window_retain_;
    state.tracking = static_cast<uint32_t>(sums_.tracking());
    state.pending_system = pending_system_;
    for (const Evictions::Event &eviction : evictions_.events()) {
        state.evictions.push_back(*eviction);
    }

    export_log(state);
    export_pages(state);
    if (!log_.empty()) {
        state.hidden = hidden_;
        const std::vector<float> &row = logits();
        state.logits = digest_row(row);
        state.top = best(row, kTop);
    }
    return state;
}

void check_geometry(const State &state, const Model &model) {
    const Config &config = model.config;
    const bool same = state.layers == config.layers && state.kv_heads == config.kv_heads &&
                      state.head_dim == config.head_dim && state.hidden_size == config.hidden &&
                      state.vocabulary == config.vocabulary;
    if (!same) {
        fail(Status::model_mismatch,
             "KV cache differs in shape: the snapshot has %u layers of %u "
             "heads of %u, the model %u of %u of %u",
             state.layers, state.kv_heads, state.head_dim, config.layers, config.kv_heads,
             config.head_dim);
    }
    const ContractId expected = contract(state.samplings); // its settings tell the third number
    if (!(state.contract == expected)) {
        fail(Status::version,
             "KV format version differs: the snapshot was computed under contract "
             "%u.%u.%u, this build computes under %u.%u.%u",
             state.contract.core, state.contract.kv, state.contract.sampling, expected.core,
             expected.kv, expected.sampling);
    }
    if (state.page_positions != kPage) {
        fail(Status::version, "KV format version differs: pages of %u positions, expected %llu",
             state.page_positions, Number{kPage});
    }
    bool groups =
        state.groups.size() == model.groups.size() && state.pages.size() == model.groups.size();
    for (size_t i = 0; groups && i < model.groups.size(); ++i) {
        groups = state.groups[i].window == model.groups[i].window &&
                 state.groups[i].layers == model.groups[i].layers &&
                 state.pages[i].size() == (state.log.size() + kPage - 1) / kPage;
    }
    if (!groups) {
        fail(Status::model_mismatch, "attention mask differs: layer groups or windows are not the "
                                     "model's");
    }
}

} // namespace stasis
