// See sample.h.
#include "sample.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "format/element_json.h"
#include "format/manifest.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/state/bf16.h"

namespace stasis::format {

namespace {

Digest digest_of(const std::string &text) {
    return Sha256().text(text).finish();
}

ModelIdentity sample_identity(const Shape &shape) {
    ModelIdentity identity;
    identity.architecture = "llama";
    identity.config = {{"layers", std::to_string(shape.layers)},
                       {"norm_eps", "1e-06"},
                       {"embedding_scale", "1"},
                       {"rope_0", "base 10000"},
                       {"layer_windows", "0 40"},
                       {"", std::string("a\0b", 3)}};
    identity.embeddings = digest_of("embeddings");
    identity.norms = digest_of("norms");
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
        identity.attention.push_back(digest_of("attention" + std::to_string(layer)));
        identity.mlp.push_back(digest_of("mlp" + std::to_string(layer)));
    }
    identity.head = digest_of("head");
    identity.model = digest_of("model");
    identity.tokenizer = digest_of("tokenizer");
    identity.tokenizer_type = "sentencepiece-bpe";
    identity.tokenizer_rules = {{"bos", "2"}, {"add_bos", "yes"}};
    identity.chat_template = "gemma";
    return identity;
}

std::vector<Sampling> sample_samplings() {
    Sampling greedy;
    Sampling drawn;
    drawn.seed = 0xFEDCBA9876543210;
    drawn.temperature = 0.7F;
    drawn.top_k = 40;
    drawn.top_p = 0.95F;
    drawn.min_p = 0.05F;
    drawn.repetition_penalty = 1.1F;
    drawn.frequency_penalty = -0.0F; // a sign that a default must not swallow
    drawn.presence_penalty = std::numeric_limits<float>::denorm_min();
    drawn.penalty_window = 0;
    drawn.bias = {{0, -std::numeric_limits<float>::infinity()}, {1, -0.0F}, {2, 2.5F}};
    return {greedy, drawn};
}

// Turns of ten tokens: template, text, template, then drawn ones; bare tokens first.
TokenEntry sample_entry(uint64_t position, uint32_t token) {
    TokenEntry entry;
    entry.token = token;
    if (position < 5) {
        return entry;
    }
    const uint64_t in_turn = position % 10;
    const bool assistant = position / 10 % 2 == 1;
    entry.turn = static_cast<uint8_t>(assistant ? Role::assistant : Role::user);
    entry.turn |= in_turn == 0 ? TokenEntry::kTurnStart : 0;
    entry.turn |= assistant && in_turn < 2 ? TokenEntry::kReplyPrompt : 0;
    entry.source = in_turn < 2 ? TokenSource::templated : TokenSource::text;
    if (assistant && in_turn >= 2) {
        entry.source = TokenSource::sampled;
        entry.sampling = position / 20 % 2;
    }
    return entry;
}

// Number `index` of what happens at a position; the same in every state of one course. SplitMix64
// (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t drawn(const Shape &shape, uint64_t position, uint64_t index) {
    const uint64_t seed = position < shape.common ? 1 : shape.seed;
    uint64_t x = (seed << 56) + (position << 32) + index + 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

// The bits of a finite bf16: exponents of all ones lose a bit.
uint16_t finite_bits(uint64_t random) {
    const auto bits = static_cast<uint16_t>(random);
    return is_finite_bf16(bits) ? bits : bits ^ 0x0080;
}

void add_groups(State &state, const Shape &shape) {
    std::vector<uint32_t> attention;
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
        const bool recurrent = shape.checkpoints != 0 && layer % 2 == 0;
        (recurrent ? state.recurrent.layers : attention).push_back(layer);
    }
    if (shape.uneven) {
        state.sharing.assign(attention.end() - 2, attention.end());
        attention.resize(attention.size() - 2);
    }
    state.groups.resize(attention.size() > 1 ? 2 : 1);
    for (size_t i = 0; i < attention.size(); ++i) {
        state.groups[i % state.groups.size()].layers.push_back(attention[i]);
    }
    state.groups.back().window = shape.window;
    if (shape.uneven) {
        state.groups.back().kv_heads = shape.kv_heads + 1;
        state.groups.back().head_dim = shape.head_dim + 6;
    }
}

void add_pages(State &state, const Shape &shape) {
    const uint64_t position = state.log.size();
    for (size_t group = 0; group < state.groups.size(); ++group) {
        std::vector<Page> &pages = state.pages.emplace_back();
        for (uint64_t index = 0; index < page_count(position, state.page_positions); ++index) {
            Page &page = pages.emplace_back();
            page.valid = page_valid(position, state.page_positions, index);
            const size_t elements = page_elements(state, group);
            const std::shared_ptr<uint16_t> data = allocate_page(elements);
            std::fill_n(data.get(), elements, uint16_t{0});
            for (size_t i = 0; i < elements; ++i) {
                const size_t slot = i / state.head_dim_of(group) % state.page_positions;
                const uint64_t at = index * state.page_positions + slot;
                const size_t row = i / state.head_dim_of(group) / state.page_positions;
                const size_t number = ((group + 1) << 20) + row * state.head_dim_of(group) +
                                      i % state.head_dim_of(group);
                if (slot < page.valid) {
                    data.get()[i] = finite_bits(drawn(shape, at, number));
                }
            }
            page.data = data.get();
            state.storage.push_back(data);
        }
    }
}

void add_states(State &state, const Shape &shape) {
    state.contract.recurrent = 7;
    state.recurrent.key_heads = 1;
    state.recurrent.value_heads = 2;
    state.recurrent.key_dim = shape.value_dim - 2;
    state.recurrent.value_dim = shape.value_dim;
    state.recurrent.taps = 4;
    for (uint64_t position = 1; position <= shape.position; ++position) {
        if (position != shape.position && position % shape.checkpoints != 0) {
            continue;
        }
        const std::shared_ptr<float[]> data(new float[state.recurrent.numbers()]);
        for (uint64_t i = 0; i < state.recurrent.numbers(); ++i) {
            const uint64_t random = drawn(shape, position - 1, (9U << 20) + i);
            // Magnitudes near each other, as a codec finds them; now and then any.
            const auto bits = static_cast<uint32_t>(random);
            const uint32_t exponent = random % 97 == 0 ? random >> 40 & 0x7F : 120 + random % 5;
            data[i] = std::bit_cast<float>((bits & 0x807FFFFF) | exponent << 23);
        }
        state.states.push_back({position, {}, data.get()});
        state.storage.push_back(data);
    }
}

void release_pages(State &state) {
    for (size_t group = 0; group < state.groups.size(); ++group) {
        const uint32_t window = state.groups[group].window;
        for (uint64_t index = 0; window != 0 && index < state.pages[group].size(); ++index) {
            const uint64_t end = (index + 1) * state.page_positions;
            if (end + window + state.window_retain <= state.log.size()) {
                state.pages[group][index].data = nullptr;
            }
        }
    }
}

} // namespace

std::vector<float> sample_row(const Shape &shape) {
    std::mt19937_64 random(shape.seed + 77);
    std::vector<float> row(shape.vocabulary);
    for (float &logit : row) {
        logit = static_cast<float>(static_cast<int64_t>(random() % 64)) * 0.25F; // with ties
    }
    return row;
}

std::vector<BadSetting> bad_settings() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    return {
        {"sampling settings: temperature", [](Sampling &s) { s.temperature = -0.5F; }},
        {"sampling settings: temperature", [](Sampling &s) { s.temperature = infinity; }},
        {"sampling settings: temperature", [](Sampling &s) { s.temperature = NAN; }},
        {"sampling settings: top_p", [](Sampling &s) { s.top_p = 0.0F; }},
        {"sampling settings: top_p", [](Sampling &s) { s.top_p = 1.0625F; }},
        {"sampling settings: top_p", [](Sampling &s) { s.top_p = NAN; }},
        {"sampling settings: min_p", [](Sampling &s) { s.min_p = -0.1F; }},
        {"sampling settings: min_p", [](Sampling &s) { s.min_p = 1.1F; }},
        {"sampling settings: min_p", [](Sampling &s) { s.min_p = NAN; }},
        {"sampling settings: repetition_penalty", [](Sampling &s) { s.repetition_penalty = 0.0F; }},
        {"sampling settings: repetition_penalty", [](Sampling &s) { s.repetition_penalty = -1; }},
        {"sampling settings: repetition_penalty", [](Sampling &s) { s.repetition_penalty = NAN; }},
        {"sampling settings: frequency_penalty",
         [](Sampling &s) { s.frequency_penalty = -infinity; }},
        {"sampling settings: presence_penalty", [](Sampling &s) { s.presence_penalty = NAN; }},
        {"logit bias: token 50", [](Sampling &s) { s.bias[2].first = 50; }},
        {"logit bias: token 1 is out of order", [](Sampling &s) { s.bias[2].first = 1; }},
        {"logit bias: token 0 is out of order", [](Sampling &s) { s.bias[1].first = 0; }},
        {"logit bias: token 1 ", [](Sampling &s) { s.bias[1].second = NAN; }},
        {"logit bias: token 1 has a bias of infinity",
         [](Sampling &s) { s.bias[1].second = infinity; }},
    };
}

State sample_state(const Shape &shape) {
    State state;
    state.contract = {4, 5, 6};
    state.model = sample_identity(shape);
    state.layers = shape.layers;
    state.kv_heads = shape.kv_heads;
    state.head_dim = shape.head_dim;
    state.hidden_size = shape.hidden_size;
    state.vocabulary = shape.vocabulary;
    state.page_positions = shape.page_positions;
    add_groups(state, shape);
    state.samplings = sample_samplings();
    state.sampling = 1;
    each_session_number([&](const auto &number) {
        using Value = std::remove_cvref_t<decltype(number.most)>;
        state.*number.member = std::min(number.most, static_cast<Value>(shape.position + 1000));
    });
    state.window_retain = shape.window_retain;
    state.pending_system = "Answer briefly.";
    for (uint64_t i = 0; i < shape.position; ++i) {
        const uint64_t token = i == 0 ? 2 : drawn(shape, i, 0) % shape.vocabulary;
        state.log.push_back(sample_entry(i, static_cast<uint32_t>(token)));
    }
    // Some tokens spell nothing; one spells half a character.
    std::vector<bool> used(shape.vocabulary);
    for (const TokenEntry &entry : state.log) {
        used[entry.token] = true;
    }
    for (uint32_t token = 2; token < shape.vocabulary; token += 3) {
        if (used[token]) {
            state.token_texts.emplace_back(token, " t" + std::to_string(token));
        }
    }
    if (!state.token_texts.empty()) {
        state.token_texts.front().second = "\xF0\x9F"; // of token 2, which comes first
    }
    add_pages(state, shape);
    if (shape.checkpoints != 0) {
        add_states(state, shape);
    }
    if (shape.position > 0) {
        for (uint32_t i = 0; i < shape.hidden_size; ++i) {
            state.hidden.push_back(finite_bits(drawn(shape, shape.position - 1, 1 + i)));
        }
        const std::vector<float> row = sample_row(shape);
        state.logits = Sha256().bytes(row.data(), row.size() * sizeof(float)).finish();
        for (uint32_t token = 0; token < shape.vocabulary; ++token) {
            state.top.emplace_back(token, row[token]);
        }
        std::stable_sort(state.top.begin(), state.top.end(),
                         [](const auto &a, const auto &b) { return a.second > b.second; });
        state.top.resize(std::min<size_t>(state.top.size(), kTopMax));
    }
    seal(state);
    release_pages(state);
    return state;
}

State with_data(State state, size_t bytes, uint8_t seed) {
    std::vector<uint8_t> value(bytes);
    for (size_t i = 0; i < bytes; ++i) {
        value[i] = static_cast<uint8_t>(i * i % 251 + seed);
    }
    const std::vector<uint8_t> title = {'a', 0, 0xFF};
    for (const auto &[name, of] :
         {std::pair("a title", &title), {"no bytes", nullptr}, {"\xC3\xA9", &value}}) {
        state.host_data = with_value(state.host_data, name,
                                     of == nullptr ? std::span<const uint8_t>() : *of);
    }
    return state;
}

State small_state(uint64_t position) {
    Shape shape = kSmall;
    shape.position = position;
    return sample_state(shape);
}

const Bytes &small_file() {
    static const std::vector<float> row = sample_row(kSmall);
    static const Bytes bytes = saved(sample_state(kSmall), {.logits_row = row});
    return bytes;
}

State course(uint64_t position, uint64_t seed, uint64_t common) {
    return sample_state({.position = position, .seed = seed, .common = common});
}

namespace {

bool same_floats(const std::vector<std::pair<uint32_t, float>> &a,
                 const std::vector<std::pair<uint32_t, float>> &b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

bool same_bits(const Sampling &a, const Sampling &b) {
    // The members before the bias have no padding between them.
    return std::memcmp(&a, &b, offsetof(Sampling, penalty_window) + sizeof a.penalty_window) == 0 &&
           same_floats(a.bias, b.bias) && a.v2 == b.v2;
}

void check_same_identity(const ModelIdentity &a, const ModelIdentity &b) {
    CHECK(a.architecture == b.architecture);
    CHECK(a.config == b.config);
    CHECK(a.embeddings == b.embeddings);
    CHECK(a.norms == b.norms);
    CHECK(a.attention == b.attention);
    CHECK(a.mlp == b.mlp);
    CHECK(a.head == b.head);
    CHECK(a.model == b.model);
    CHECK(a.tokenizer == b.tokenizer);
    CHECK(a.tokenizer_type == b.tokenizer_type);
    CHECK(a.tokenizer_rules == b.tokenizer_rules);
    CHECK(a.chat_template == b.chat_template);
}

void check_same_states(const State &a, const State &b) {
    CHECK(a.recurrent == b.recurrent);
    REQUIRE(a.states.size() == b.states.size());
    for (size_t i = 0; i < a.states.size(); ++i) {
        const RecurrentState &x = a.states[i];
        const RecurrentState &y = b.states[i];
        CHECK(x.position == y.position);
        CHECK(x.digest == y.digest);
        REQUIRE((x.data == nullptr) == (y.data == nullptr));
        CHECK((x.data == nullptr ||
               std::memcmp(x.data, y.data, a.recurrent.numbers() * sizeof(float)) == 0));
    }
}

void check_same_data(const HostData *a, const HostData *b) {
    REQUIRE((a == nullptr) == (b == nullptr));
    if (a == nullptr) {
        return;
    }
    REQUIRE(a->size() == b->size());
    for (auto x = a->begin(), y = b->begin(); x != a->end(); ++x, ++y) {
        CHECK(x->first == y->first);
        CHECK(x->second->bytes == y->second->bytes);
        CHECK(x->second->digest == y->second->digest);
    }
}

void check_same_pages(const State &a, const State &b) {
    REQUIRE(a.pages.size() == b.pages.size());
    for (size_t group = 0; group < a.pages.size(); ++group) {
        REQUIRE(a.pages[group].size() == b.pages[group].size());
        for (size_t index = 0; index < a.pages[group].size(); ++index) {
            const Page &x = a.pages[group][index];
            const Page &y = b.pages[group][index];
            CHECK(x.valid == y.valid);
            CHECK(x.digest == y.digest);
            REQUIRE((x.data == nullptr) == (y.data == nullptr));
            if (x.data != nullptr) {
                CHECK(std::memcmp(x.data, y.data, page_elements(a, group) * sizeof(uint16_t)) == 0);
                CHECK(reinterpret_cast<uintptr_t>(y.data) % kAlignment == 0);
            }
        }
    }
}

} // namespace

void check_same(const State &a, const State &b) {
    check_same_data(a.host_data.get(), b.host_data.get());
    CHECK(a.contract == b.contract);
    check_same_identity(a.model, b.model);
    CHECK(a.layers == b.layers);
    CHECK(a.kv_heads == b.kv_heads);
    CHECK(a.head_dim == b.head_dim);
    CHECK(a.hidden_size == b.hidden_size);
    CHECK(a.vocabulary == b.vocabulary);
    CHECK(a.page_positions == b.page_positions);
    REQUIRE(a.groups.size() == b.groups.size());
    for (size_t group = 0; group < a.groups.size(); ++group) {
        CHECK(a.groups[group].window == b.groups[group].window);
        CHECK(a.groups[group].layers == b.groups[group].layers);
        CHECK(a.groups[group].kv_heads == b.groups[group].kv_heads);
        CHECK(a.groups[group].head_dim == b.groups[group].head_dim);
    }
    CHECK(a.sharing == b.sharing);
    CHECK(a.log == b.log);
    CHECK(a.profile == b.profile);
    CHECK(a.evictions == b.evictions);
    REQUIRE(a.samplings.size() == b.samplings.size());
    for (size_t i = 0; i < a.samplings.size(); ++i) {
        CHECK(same_bits(a.samplings[i], b.samplings[i]));
    }
    CHECK(a.sampling == b.sampling);
    each_session_number([&](const auto &number) {
        INFO(number.name);
        CHECK(a.*number.member == b.*number.member);
    });
    CHECK(a.pending_system == b.pending_system);
    check_same_pages(a, b);
    check_same_states(a, b);
    CHECK(a.hidden == b.hidden);
    CHECK(a.logits == b.logits);
    CHECK(same_floats(a.top, b.top));
    CHECK(a.token_texts == b.token_texts);
    CHECK(a.digest == b.digest);
}

std::string element_text(const Snapshot &snapshot, uint32_t element) {
    std::string text(element_json(snapshot, element, {}), '\0');
    CHECK(element_json(snapshot, element, text) == text.size());
    return text;
}

void check_refused(const std::string &why, const Bytes &bytes) {
    CAPTURE(why);
    largest_allocation();
    const std::string message = refusal(bytes);
    const size_t asked = largest_allocation();
    CAPTURE(message);
    CHECK(message.starts_with("6: memory: "));
    CHECK(message.find(why) != std::string::npos);
    CHECK(asked < 4 * bytes.size());
}

void refused(const char *why, const Change &change) {
    check_refused(why, forged(small_file(), change));
}

bool opens(const Bytes &bytes) {
    try {
        Snapshot::open("memory", memory_files(bytes));
        return true;
    } catch (const Error &error) {
        CHECK((error.status() == Status::corrupt || error.status() == Status::version));
        return false;
    }
}

} // namespace stasis::format
