// FlatBuffers to State, layout and identity; see manifest.h. Paired with manifest_build.cpp.
#include <algorithm>
#include <cstring>
#include <set>

#include "format/constants.h"
#include "format/manifest.h"
#include "format/numbers.h"
#include "format/state/error.h"
#include "manifest_generated.h"

namespace stasis::format {

namespace {

namespace fb = manifest;
template <class T> using Vector = flatbuffers::Vector<T>;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using Values = std::vector<std::pair<uint32_t, float>>;

// Limits what is unpacked. In FlatBuffers many offsets may refer to one string, vector or table, so
// that a small manifest could unfold into gigabytes. The parts of a manifest that a save has
// written never add up to more than its size.
class Budget {
  public:
    explicit Budget(uint64_t bytes) : left_(bytes) {}
    void take(uint64_t count, uint64_t item_bytes) {
        if (count > left_ / item_bytes) {
            fail(Status::corrupt, "manifest: its contents add up to more than its size");
        }
        left_ -= count * item_bytes;
    }

  private:
    uint64_t left_;
};

// Lower bounds of the bytes of a table: the offset to it, its own to its fields, the required
// fields, and the lengths of its strings and vectors.
constexpr uint64_t kPairBytes = 6 * sizeof(uint32_t);
constexpr uint64_t kSamplingBytes = 4 * sizeof(uint32_t);
constexpr uint64_t kConstraintBytes = 4 * sizeof(uint32_t);
constexpr uint64_t kGroupBytes = 4 * sizeof(uint32_t) + sizeof(fb::NodeRef);

Digest unpack(const fb::Digest *packed) {
    Digest digest;
    std::memcpy(digest.bytes.data(), packed->bytes()->Data(), digest.bytes.size());
    return digest;
}

std::string unpack(const flatbuffers::String *packed, Budget &budget) {
    budget.take(packed->size(), 1);
    return packed->str();
}

std::vector<Digest> unpack(const Vector<const fb::Digest *> *packed, Budget &budget) {
    budget.take(packed->size(), sizeof(fb::Digest));
    std::vector<Digest> digests;
    digests.reserve(packed->size());
    for (const fb::Digest *digest : *packed) {
        digests.push_back(unpack(digest));
    }
    return digests;
}

std::vector<uint32_t> unpack(const Vector<uint32_t> *packed, Budget &budget) {
    budget.take(packed->size(), sizeof(uint32_t));
    return {packed->begin(), packed->end()};
}

Pairs unpack(const Vector<flatbuffers::Offset<fb::Pair>> *packed, Budget &budget) {
    budget.take(packed->size(), kPairBytes);
    Pairs pairs;
    pairs.reserve(packed->size());
    for (const fb::Pair *pair : *packed) {
        std::string name = unpack(pair->name(), budget);
        pairs.emplace_back(std::move(name), unpack(pair->value(), budget));
    }
    return pairs;
}

Values unpack(const Vector<const fb::TokenValue *> *packed, Budget &budget) {
    budget.take(packed->size(), sizeof(fb::TokenValue));
    Values values;
    values.reserve(packed->size());
    for (const fb::TokenValue *value : *packed) {
        values.emplace_back(value->token(), value->value());
    }
    return values;
}

ModelIdentity unpack(const fb::Identity *packed, Budget &budget) {
    ModelIdentity identity;
    identity.architecture = unpack(packed->architecture(), budget);
    identity.config = unpack(packed->config(), budget);
    identity.embeddings = unpack(packed->embeddings());
    identity.norms = unpack(packed->norms());
    identity.attention = unpack(packed->attention(), budget);
    identity.mlp = unpack(packed->mlp(), budget);
    identity.head = unpack(packed->head());
    identity.model = unpack(packed->model());
    identity.tokenizer = unpack(packed->tokenizer());
    identity.tokenizer_type = unpack(packed->tokenizer_type(), budget);
    identity.tokenizer_rules = unpack(packed->tokenizer_rules(), budget);
    identity.chat_template = unpack(packed->chat_template(), budget);
    return identity;
}

SamplingV2 unpack(const fb::SamplingV2 *from, Budget &budget) {
    SamplingV2 v2;
    if (from != nullptr) {
        v2.typical_p = from->typical_p();
        v2.top_n_sigma = from->top_n_sigma();
        v2.xtc_probability = from->xtc_probability();
        v2.xtc_threshold = from->xtc_threshold();
        v2.dry_multiplier = from->dry_multiplier();
        v2.dry_base = from->dry_base();
        v2.dry_allowed_length = from->dry_allowed_length();
        v2.dry_range = from->dry_range();
        v2.min_keep = from->min_keep();
        v2.dry_breakers = unpack(from->dry_breakers(), budget);
    }
    return v2;
}

using ReadConstraints = std::vector<std::shared_ptr<const Constraint>>;

// Constraints that are equal would say in another way that settings share one.
ReadConstraints unpack_constraints(const fb::Manifest *packed, Budget &budget) {
    ReadConstraints constraints;
    if (packed->constraints() == nullptr) {
        return constraints;
    }
    budget.take(packed->constraints()->size(), kConstraintBytes);
    std::set<std::pair<uint32_t, std::string_view>> known;
    for (const fb::Constraint *from : *packed->constraints()) {
        constraints.push_back(std::make_shared<const Constraint>(
            Constraint{from->kind(), unpack(from->text(), budget)}));
        if (!known.emplace(constraints.back()->kind, constraints.back()->text).second) {
            fail(Status::corrupt, "manifest: constraint %zu is there twice",
                 constraints.size() - 1);
        }
    }
    return constraints;
}

// `used` counts the constraints that settings have named, which they do in order.
SamplingV3 unpack(const fb::SamplingV3 *from, const ReadConstraints &constraints, size_t &used,
                  Budget &budget) {
    SamplingV3 v3;
    if (from == nullptr) {
        return v3;
    }
    if (const uint32_t number = from->constraint(); number > 0) {
        if (number > used + 1 || number > constraints.size()) {
            fail(Status::corrupt, "manifest: settings name constraint %u of %zu, after %zu of them",
                 number - 1, constraints.size(), used);
        }
        used = std::max<size_t>(used, number);
        v3.constraint.value = constraints[number - 1];
    }
    if (const Vector<uint8_t> *bytes =
            from->allowed()) { // as builds before Manifest.settings wrote
        budget.take(bytes->size(), 1);
        v3.allowed.value = std::make_shared<const std::string>(bytes->begin(), bytes->end());
    }
    return v3;
}

void unpack_samplings(const fb::Manifest *packed, State &state, Budget &budget) {
    const ReadConstraints constraints = unpack_constraints(packed, budget);
    size_t used = 0;
    budget.take(packed->samplings()->size(), kSamplingBytes);
    state.samplings.reserve(packed->samplings()->size());
    for (const fb::Sampling *from : *packed->samplings()) {
        Sampling &sampling = state.samplings.emplace_back();
        sampling.seed = from->seed();
        sampling.temperature = from->temperature();
        sampling.top_k = from->top_k();
        sampling.top_p = from->top_p();
        sampling.min_p = from->min_p();
        sampling.repetition_penalty = from->repetition_penalty();
        sampling.frequency_penalty = from->frequency_penalty();
        sampling.presence_penalty = from->presence_penalty();
        sampling.penalty_window = from->penalty_window();
        sampling.bias = unpack(from->bias(), budget);
        sampling.v2 = unpack(from->v2(), budget);
        sampling.v3 = unpack(from->v3(), constraints, used, budget);
    }
    if (used != constraints.size()) {
        fail(Status::corrupt, "manifest: %zu constraints, of which settings name %zu",
             constraints.size(), used);
    }
}

Profile unpack(const fb::Profile *from, Budget &budget) {
    Profile profile;
    if (from != nullptr) {
        profile.id = unpack(from->id(), budget);
        budget.take(from->chunks()->size(), sizeof(fb::ProfileChunk));
        profile.chunks.reserve(from->chunks()->size());
        uint64_t end = 0;
        for (const fb::ProfileChunk *chunk : *from->chunks()) {
            profile.chunks.push_back({end + chunk->skip(), chunk->rows(), chunk->padded()});
            end = profile.chunks.back().end();
        }
        profile.foreign = from->foreign();
    }
    return profile;
}

// A table without layers would only say in another way that there is none.
void unpack_recurrent(const fb::Recurrent *from, State &state, Layout &layout, Budget &budget) {
    if (from == nullptr) {
        return;
    }
    RecurrentShape &shape = state.recurrent;
    shape.layers = unpack(from->layers(), budget);
    shape.key_heads = from->key_heads();
    shape.value_heads = from->value_heads();
    shape.key_dim = from->key_dim();
    shape.value_dim = from->value_dim();
    shape.taps = from->taps();
    if (shape.layers.empty()) {
        fail(Status::corrupt, "manifest: recurrent layers, but none is named");
    }
    budget.take(from->states()->size(), sizeof(fb::RecurrentState));
    state.states.reserve(from->states()->size());
    layout.states.reserve(from->states()->size());
    for (const fb::RecurrentState *each : *from->states()) {
        state.states.push_back({each->position(), unpack(&each->digest()), nullptr});
        layout.states.push_back({each->offset(), each->stored()});
    }
}

SectionRef unpack(const fb::SectionRef *packed) {
    return {packed->offset(), packed->bytes(), unpack(&packed->digest())};
}

NodeRef unpack(const fb::NodeRef *packed) {
    return {packed->section(), packed->begin(), packed->bytes(), unpack(&packed->digest())};
}

void unpack_groups(const fb::Manifest *packed, State &state, Layout &layout, Budget &budget) {
    budget.take(packed->groups()->size(), kGroupBytes);
    for (const fb::Group *from : *packed->groups()) {
        LayerGroup &group = state.groups.emplace_back();
        group.window = from->window();
        group.layers = unpack(from->layers(), budget);
        group.kv_heads = from->kv_heads();
        group.head_dim = from->head_dim();
        layout.pages.push_back(unpack(from->pages()));
    }
}

// Returns the root table after checking that the whole buffer follows the schema. Throws
// Error(corrupt).
template <class Table>
const Table *verified(std::span<const uint8_t> bytes, const char *name, const char *identifier) {
    flatbuffers::Verifier::Options limits;
    limits.max_depth = 8;
    limits.max_tables = 1U << 18;
    flatbuffers::Verifier verifier(bytes.data(), bytes.size(), limits);
    if (!verifier.VerifyBuffer<Table>(identifier)) {
        fail(Status::corrupt, "%s: its %zu bytes do not follow the schema", name, bytes.size());
    }
    return flatbuffers::GetRoot<Table>(bytes.data());
}

} // namespace

ModelIdentity parse_identity(std::span<const uint8_t> bytes) {
    Budget budget(bytes.size());
    return unpack(verified<fb::Identity>(bytes, "identity", kIdentityIdentifier), budget);
}

void parse_manifest(std::span<const uint8_t> manifest, State &state, Layout &layout) {
    const auto *packed = verified<fb::Manifest>(manifest, "manifest", fb::ManifestIdentifier());
    Budget budget(manifest.size());

    state.contract = {packed->contract()->core(), packed->contract()->kv(),
                      packed->contract()->sampling(), packed->contract_recurrent(),
                      packed->contract_experts()};
    state.layers = packed->layers();
    state.kv_heads = packed->kv_heads();
    state.head_dim = packed->head_dim();
    state.hidden_size = packed->hidden_size();
    state.vocabulary = packed->vocabulary();
    state.page_positions = packed->page_positions();
    unpack_groups(packed, state, layout, budget);
    if (packed->sharing() != nullptr) {
        state.sharing = unpack(packed->sharing(), budget);
    }
    unpack_samplings(packed, state, budget);
    state.sampling = packed->sampling();
    each_session_number(
        [&](const auto &number) { state.*number.member = read_number(*packed, number); });
    state.profile = unpack(packed->profile(), budget);
    unpack_recurrent(packed->recurrent(), state, layout, budget);
    state.pending_system = unpack(packed->pending_system(), budget);
    state.logits = unpack(packed->logits());
    state.top = unpack(packed->top(), budget);
    state.digest = unpack(packed->digest());
    // An unknown value must not become an enumerator.
    if (packed->keep() > static_cast<uint32_t>(Keep::none)) {
        fail(Status::corrupt, "manifest: what it keeps is %u, expected 0 or 1", packed->keep());
    }
    layout.keep = static_cast<Keep>(packed->keep());

    layout.position = packed->position();
    layout.text_count = packed->text_count();
    layout.identity = unpack(packed->identity());
    layout.hidden = unpack(packed->hidden());
    layout.logits_row = unpack(packed->logits_row());
    if (packed->evictions() != nullptr) {
        layout.evictions = unpack(packed->evictions());
    }
    if (packed->host_data() != nullptr) {
        layout.host_data = unpack(packed->host_data());
    }
    layout.log = unpack(packed->log());
    layout.texts = unpack(packed->texts());
    if (packed->settings() != nullptr) {
        layout.settings = unpack(packed->settings());
    }
    layout.setting_count = packed->setting_count();
}

} // namespace stasis::format
