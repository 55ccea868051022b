// A session's whole state as plain data: what the runtime hands to the writer and what the reader
// hands back. The one struct that runtime and format share; it owns no behaviour.
// Big 8 + 4 (design): the element each field belongs to is named beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "format/state/digest.h"
#include "format/state/host_data.h"

namespace stasis {

// The contract under which every number was computed; a vector, so that a new sampler does not
// invalidate a cache (FORMAT.md, "Versions"). runtime/kernels/NUMERICS.md states the clauses.
struct ContractId {
    uint32_t core = 0;
    uint32_t kv = 0;
    uint32_t sampling = 0;
    uint32_t recurrent = 0; // 0: no layer of the model is recurrent
    uint32_t experts = 0;   // 0: no layer of the model has experts
    bool operator==(const ContractId &) const = default;
};

// Positions [begin, begin + rows) of which the products with weights were computed together under a
// device profile: as the first rows of `padded`.
struct ProfileChunk {
    uint64_t begin = 0;
    uint32_t rows = 0, padded = 0;
    uint64_t end() const { return begin + rows; }
    bool operator==(const ProfileChunk &) const = default;
};

// What of a session was computed outside the contract (NUMERICS.md, "Device profiles").
struct Profile {
    std::string id;                   // under which it goes on; "": the contract alone
    std::vector<ProfileChunk> chunks; // ascending, apart; what is in none is the contract's
    uint64_t foreign = 0; // positions below were, some of them, computed under another id
    bool operator==(const Profile &) const = default;

    // Forgets what lies behind a position.
    void cut(uint64_t position) noexcept;
    // Goes on under another id: what came of chunks cannot be computed again from there on.
    void go_on_under(const std::string &other);
    // The chunk that holds a position; null: none.
    const ProfileChunk *chunk_of(uint64_t position) const;
};

// Where a token of the log came from.
enum class TokenSource : uint8_t {
    prompt = 0,    // appended as token ids by the caller
    templated = 1, // added by the chat template (markers, bos, generation prompt, closing)
    text = 2,      // text of a message
    sampled = 3,   // drawn by the sampler
};

// Whose turn a token belongs to. `none` for tokens outside a chat template's turns.
enum class Role : uint8_t { none = 0, system = 1, user = 2, assistant = 3, other = 4 };

struct TokenEntry {
    uint32_t token = 0;
    uint16_t sampling = 0; // sampled tokens: index into State::samplings; others 0
    TokenSource source = TokenSource::prompt;
    uint8_t turn = 0; // Role in the low bits, and the two flags

    static constexpr uint8_t kTurnStart = 0x80;   // the first token of a turn
    static constexpr uint8_t kReplyPrompt = 0x40; // of the prompt for a reply: a reply stands open
    static constexpr uint8_t kRoleMask = 0x0F;
    Role role() const { return static_cast<Role>(turn & kRoleMask); }
    bool starts_turn() const { return (turn & kTurnStart) != 0; }
    bool operator==(const TokenEntry &) const = default;
};
static_assert(sizeof(TokenEntry) == 8);

// What version 2 of C7 added. Defaults change nothing.
struct SamplingV2 {
    float typical_p = 1.0F;
    float top_n_sigma = 0.0F;     // 0: off
    float xtc_probability = 0.0F; // 0: off
    float xtc_threshold = 0.1F;   // of XTC, as the three after dry_multiplier of DRY
    float dry_multiplier = 0.0F;  // 0: off
    float dry_base = 1.75F;
    uint32_t dry_allowed_length = 2;
    uint32_t dry_range = 0; // last tokens that DRY looks at; 0: the whole log
    uint32_t min_keep = 1;
    std::vector<uint32_t> dry_breakers; // ascending
    bool operator==(const SamplingV2 &) const = default;
};

// A constraint on what is drawn, as a host gave it (CONSTRAINTS.md).
struct Constraint {
    uint32_t kind = 0; // constraint::ConstraintKind
    std::string text;
    bool operator==(const Constraint &) const = default;

    static constexpr uint32_t kJsonSchema = 1, kJson = 2, kRegex = 3, kGrammar = 4;
    static constexpr uint32_t kKindMax = kGrammar;
    static constexpr size_t kTextMax = size_t{1} << 18;
};

// A value that copies share, or none. Two are equal if their values are.
template <class T> struct Shared {
    std::shared_ptr<const T> value; // null: none
    bool operator==(const Shared &other) const {
        return value == other.value ||
               (value != nullptr && other.value != nullptr && *value == *other.value);
    }
};

// What version 3 of C7 added: which tokens may be drawn at all. Defaults allow all of them.
struct SamplingV3 {
    Shared<Constraint> constraint;
    Shared<std::string> allowed; // tokens that a host allows for this draw alone; encode_tokens
    bool operator==(const SamplingV3 &) const = default;
};

// Sampling parameters (C7); 0 temperature is greedy. Defaults change nothing.
struct Sampling {
    uint64_t seed = 0;
    float temperature = 0.0F;
    uint32_t top_k = 0; // 0: off
    float top_p = 1.0F;
    float min_p = 0.0F;
    float repetition_penalty = 1.0F;
    float frequency_penalty = 0.0F;
    float presence_penalty = 0.0F;
    uint32_t penalty_window = 64; // last tokens that penalties look at; 0: the whole log
    std::vector<std::pair<uint32_t, float>> bias; // token, added to its logit; ascending by token
    SamplingV2 v2 = {};
    SamplingV3 v3 = {};
    bool operator==(const Sampling &) const = default;
};

// Returns a number that settings of the same bits have in common, and others hardly ever.
uint64_t sampling_hash(const Sampling &sampling);

// Whether any of a session's settings uses what a version of C7 added.
bool uses_v2(const std::vector<Sampling> &samplings);
bool uses_v3(const std::vector<Sampling> &samplings);
// The version of C7 that they need: 3 where any uses what version 3 added, else 2 or 1.
uint32_t sampling_version(const std::vector<Sampling> &samplings);

// Identity of the model, group by group (elements 2, 3, 5, 6, 7, 8, +2).
struct ModelIdentity {
    std::string architecture;
    // Canonical hyperparameters, name and value, in a fixed order: sizes, eps, conventions, rope
    // (both bases, scaling), windows, caps, activation (elements 3, 5, 6, 7). Equal meaning gives
    // equal text, whatever the config file looked like.
    std::vector<std::pair<std::string, std::string>> config;
    Digest embeddings;             // element 2
    Digest norms;                  // element 7
    std::vector<Digest> attention; // element 8, per layer: q, k, v, o, their biases
    std::vector<Digest> mlp;       // per layer: gate, up, down, their biases
    Digest head;                   // output head (the embeddings' digest where tied)
    // SHA-256 over everything above: equal means equal results. The tokenizer is not in it.
    Digest model;
    Digest tokenizer;           // element +2; all zero: the model has no tokenizer
    std::string tokenizer_type; // "sentencepiece-bpe", "byte-level-bpe" and so on; "" = none
    std::vector<std::pair<std::string, std::string>> tokenizer_rules; // special ids, add_bos, ...
    std::string chat_template;                                        // recognised name, "" = none
};

// Layers that see the same positions share pages.
struct LayerGroup {
    uint32_t window = 0;          // positions a query sees, itself included; 0: all
    std::vector<uint32_t> layers; // ascending
    // Of these layers, where they are not the state's; both 0: the state's.
    uint32_t kv_heads = 0, head_dim = 0;
};

// The layers that have a recurrent state in place of keys and values (NUMERICS.md, C11).
struct RecurrentShape {
    std::vector<uint32_t> layers; // ascending; empty: the model has none, and all else is 0
    uint32_t key_heads = 0;       // 0, as key_dim: short convolutions, without S
    uint32_t value_heads = 0;
    uint32_t key_dim = 0, value_dim = 0; // of one head
    uint32_t taps = 0;                   // of the convolution
    bool operator==(const RecurrentShape &) const = default;

    // Numbers of one layer: inputs [taps - 1][channels], the oldest first, a channel for each
    // number of the queries, the keys and the values; then S [value_heads][key_dim][value_dim].
    uint64_t inputs_size() const {
        const uint64_t channels =
            2 * uint64_t{key_heads} * key_dim + uint64_t{value_heads} * value_dim;
        return taps == 0 ? 0 : (taps - 1) * channels;
    }
    uint64_t rule_size() const { return uint64_t{value_heads} * key_dim * value_dim; }
    uint64_t state_size() const { return inputs_size() + rule_size(); }
    uint64_t numbers() const { return layers.size() * state_size(); } // of all layers
};

// The state of all recurrent layers after the first `position` tokens.
struct RecurrentState {
    uint64_t position = 0;
    Digest digest = {};          // recurrent_state_digest; outlives the data
    const float *data = nullptr; // [recurrent layer][inputs, S], RecurrentShape; null: not loaded
};

// Keys and values of `valid` positions from index * page_positions on, for all layers of a group.
// Order: [layer of the group][key, value][kv_head][slot][head_dim] bf16, of the group's sizes.
struct Page {
    uint32_t valid = 0; // used slots; only the last page of a group has fewer than page_positions
    Digest digest;      // page_digest; outlives the data
    const uint16_t *data = nullptr; // null: far, or else released (fell out of the window) or not
                                    // loaded
    // Its digest when it was shorter, as of the last save or load (0: none): a file that is known
    // to have it like that need not be read to see what both share.
    uint32_t earlier_valid = 0;
    Digest earlier = {};
    bool far = false; // not in this memory: State::fetch brings the data

    bool kept() const { return data != nullptr || far; }
};

struct PageName {
    size_t group = 0;
    uint64_t index = 0;
};

// A page to be read, and where to.
struct PageInto {
    size_t group = 0;
    uint64_t index = 0;
    uint16_t *data = nullptr;
};

// Far pages on their way here.
struct FetchedPages {
    // [page asked for] where all its numbers lie once they are waited for, for as long as this
    // lives; those of unused slots are undefined.
    std::vector<const uint16_t *> numbers;
    std::function<void()> wait; // throws Error(device)
};

// Positions [begin, end).
struct PositionRange {
    uint64_t begin = 0, end = 0;
    bool operator==(const PositionRange &) const = default;
};
static_assert(sizeof(PositionRange) == 16); // as it is stored

// Positions that no token from `position` on sees; one event for each position at which some were
// evicted. `hidden` is what a rewind to there goes on with: what the last token saw may be gone.
struct Eviction {
    uint64_t position = 0;             // tokens in the log when it happened
    std::vector<PositionRange> ranges; // ascending, apart, none of it evicted before
    std::vector<uint16_t> hidden;      // final normalised hidden state before `position`, bf16
    bool operator==(const Eviction &) const = default;
};

struct State {
    ContractId contract; // +3
    Profile profile;     // +3
    ModelIdentity model; // 2, 3, 5, 6, 7, 8, +2
    uint32_t layers = 0; // 1, +3: page geometry
    uint32_t kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t hidden_size = 0;
    uint32_t vocabulary = 0;
    uint32_t page_positions = 0;
    std::vector<LayerGroup> groups; // 3, 5
    std::vector<uint32_t> sharing; // 1; layers that use another layer's keys and values, ascending:
                                   // they have no pages and are in no group
    std::vector<TokenEntry> log;   // 4, +4; position (3) is its size
    std::vector<Eviction> evictions;           // 5; ascending by position
    std::vector<Sampling> samplings;           // 6; entries are named by sampled tokens of the log
    uint32_t sampling = 0;                     // index of the settings in force
    uint64_t capacity = 0;                     // 6; positions the session may reach
    uint64_t window_retain = 0;                // positions local layers keep beyond their window
    uint32_t tracking = 0;                     // 6; of attention: 0 none, 1 in total, 2 by head
    std::string pending_system;                // +4; system text waiting for the first user turn
    std::shared_ptr<const HostData> host_data; // null: none. Not part of the digest.
    std::vector<std::vector<Page>> pages;      // 1; [group][page index], ceil(position / page) each
    RecurrentShape recurrent;                  // 1; layers that are in no group
    // 1; ascending by position. The last is at log.size(), those before are checkpoints, which a
    // rewind goes on from. None at position 0, where a state is all +0.
    std::vector<RecurrentState> states;
    std::vector<uint16_t> hidden; // +1; final normalised hidden state, bf16; empty at 0
    Digest logits;                // +1; SHA-256 of the f32 row, little-endian
    std::vector<std::pair<uint32_t, float>> top; // +1; the 64 best, logit descending, then id
    std::vector<std::pair<uint32_t, std::string>> token_texts; // +2; bytes of each token in the log
    Digest digest;                                             // state_digest of all this

    // Keeps `data` of pages and recurrent states alive: the writer's caller pins live ones, the
    // reader its buffers.
    std::vector<std::shared_ptr<const void>> storage;
    // Begins to bring far pages here. Called from several threads at a time. Throws Error(device),
    // Error(no_memory). Null: no page is far.
    std::function<FetchedPages(std::span<const PageName> pages)> fetch;

    // Sizes of the layers in a group.
    uint32_t kv_heads_of(size_t group) const {
        return groups[group].kv_heads == 0 ? kv_heads : groups[group].kv_heads;
    }
    uint32_t head_dim_of(size_t group) const {
        return groups[group].head_dim == 0 ? head_dim : groups[group].head_dim;
    }
};

// A number of a session that a snapshot stores apart from its log, pages and settings.
template <class T> struct SessionNumber {
    const char *name;  // of the member, of the manifest's field, in the JSON of element 6
    const char *title; // in messages
    T State::*member;
    T most; // a larger one is refused
};

// All of them, in the order of the JSON and of comparisons. The manifest's builder and parser, the
// checks, the comparison and the JSON walk this list.
inline constexpr std::tuple kSessionNumbers = {
    SessionNumber<uint64_t>{"capacity", "capacity", &State::capacity, UINT64_MAX},
    SessionNumber<uint64_t>{"window_retain", "window_retain", &State::window_retain, UINT64_MAX},
    SessionNumber<uint32_t>{"tracking", "tracking of attention", &State::tracking, 2},
};

// Calls visit(number) for each.
template <class Visit> void each_session_number(const Visit &visit) {
    std::apply([&](const auto &...number) { (visit(number), ...); }, kSessionNumbers);
}

// The state digest of what a state says, page digests included; its own one is not looked at.
Digest state_digest(const State &state);

} // namespace stasis
