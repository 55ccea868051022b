// State, layout and identity to FlatBuffers; see manifest.h. Paired with manifest_parse.cpp.
#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>

#include "format/constants.h"
#include "format/manifest.h"
#include "format/numbers.h"
#include "format/state/error.h"
#include "manifest_generated.h"

namespace stasis::format {

namespace {

namespace fb = manifest;
using Builder = flatbuffers::FlatBufferBuilder;
template <class T> using Offset = flatbuffers::Offset<T>;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using Values = std::vector<std::pair<uint32_t, float>>;

constexpr uint64_t kTableBytes = 128; // upper bound for a table with its offsets

// Throws Error(unsupported) if an upper bound of the buffer's size exceeds the limit: FlatBuffers
// itself would only notice at 2 GiB, by an assert.
void check_bound(const char *name, uint64_t bound) {
    if (bound > kManifestBytesMax) {
        fail(Status::unsupported, "the %s would take %llu bytes, the format allows %llu", name,
             static_cast<Number>(bound), static_cast<Number>(kManifestBytesMax));
    }
}

// The different constraints of a session's settings in the order of their first use, and of each
// of its settings 1 more than the index; 0: none.
struct UsedConstraints {
    std::vector<const Constraint *> all;
    std::vector<uint32_t> of;
};

UsedConstraints constraints_of(const std::vector<Sampling> &samplings) {
    struct Order {
        bool operator()(const Constraint *a, const Constraint *b) const {
            return std::tie(a->kind, a->text) < std::tie(b->kind, b->text);
        }
    };
    UsedConstraints result;
    std::map<const Constraint *, uint32_t, Order> known;
    std::map<const Constraint *, uint32_t> same; // which are not compared again
    for (const Sampling &sampling : samplings) {
        const Constraint *constraint = sampling.v3.constraint.value.get();
        uint32_t &number = same[constraint];
        if (constraint != nullptr && number == 0) {
            const auto next = static_cast<uint32_t>(result.all.size() + 1);
            number = known.emplace(constraint, next).first->second;
            if (number == next) {
                result.all.push_back(constraint);
            }
        }
        result.of.push_back(number);
    }
    return result;
}

// Returns the settings that the manifest lists: the state's, or those that a tree's items name.
std::vector<Sampling> listed_settings(const State &state, const Layout &layout) {
    if (layout.plain_settings.empty()) {
        return state.samplings;
    }
    std::vector<Sampling> plain;
    for (size_t i = 0; i < state.samplings.size() && i < layout.plain_settings.size(); ++i) {
        if (layout.plain_settings[i] == plain.size()) { // they are named in order
            plain.push_back(state.samplings[i]);
            plain.back().v3.allowed = {};
        }
    }
    return plain;
}

// Returns an upper bound of the manifest's size, before it is built.
uint64_t size_bound(const State &state, const std::vector<Sampling> &samplings) {
    uint64_t bytes = 4096 + state.pending_system.size();
    for (const LayerGroup &group : state.groups) {
        bytes += kTableBytes + group.layers.size() * sizeof(uint32_t);
    }
    for (const Sampling &sampling : samplings) {
        bytes += 2 * kTableBytes + sampling.bias.size() * sizeof(fb::TokenValue) +
                 sampling.v2.dry_breakers.size() * sizeof(uint32_t);
        bytes += sampling.v3 == SamplingV3() ? 0 : kTableBytes;
        bytes += sampling.v3.allowed.value ? sampling.v3.allowed.value->size() : 0;
    }
    for (const Constraint *constraint : constraints_of(samplings).all) {
        bytes += kTableBytes + constraint->text.size();
    }
    bytes += state.sharing.size() * sizeof(uint32_t);
    bytes += kTableBytes + state.recurrent.layers.size() * sizeof(uint32_t) +
             state.states.size() * sizeof(fb::RecurrentState);
    bytes += kTableBytes + state.profile.id.size() +
             state.profile.chunks.size() * sizeof(fb::ProfileChunk);
    return bytes + state.top.size() * sizeof(fb::TokenValue);
}

uint64_t size_bound(const ModelIdentity &identity) {
    uint64_t bytes = 4096 + identity.architecture.size() + identity.tokenizer_type.size() +
                     identity.chat_template.size();
    for (const Pairs *pairs : {&identity.config, &identity.tokenizer_rules}) {
        for (const auto &[name, value] : *pairs) {
            bytes += kTableBytes + name.size() + value.size();
        }
    }
    return bytes + (identity.attention.size() + identity.mlp.size()) * sizeof(Digest);
}

fb::Digest pack(const Digest &digest) {
    return fb::Digest(flatbuffers::span<const uint8_t, 32>(digest.bytes));
}

auto pack(Builder &builder, const std::vector<Digest> &digests) {
    std::vector<fb::Digest> packed;
    packed.reserve(digests.size());
    for (const Digest &digest : digests) {
        packed.push_back(pack(digest));
    }
    return builder.CreateVectorOfStructs(packed);
}

auto pack(Builder &builder, const Pairs &pairs) {
    std::vector<Offset<fb::Pair>> packed;
    for (const auto &[name, value] : pairs) {
        const auto packed_name = builder.CreateString(name);
        packed.push_back(fb::CreatePair(builder, packed_name, builder.CreateString(value)));
    }
    return builder.CreateVector(packed);
}

auto pack(Builder &builder, const Values &values) {
    std::vector<fb::TokenValue> packed;
    for (const auto &[token, value] : values) {
        packed.emplace_back(token, value);
    }
    return builder.CreateVectorOfStructs(packed);
}

Offset<fb::Identity> pack(Builder &builder, const ModelIdentity &identity) {
    const auto architecture = builder.CreateString(identity.architecture);
    const auto config = pack(builder, identity.config);
    const auto attention = pack(builder, identity.attention);
    const auto mlp = pack(builder, identity.mlp);
    const auto tokenizer_type = builder.CreateString(identity.tokenizer_type);
    const auto rules = pack(builder, identity.tokenizer_rules);
    const auto chat_template = builder.CreateString(identity.chat_template);
    const fb::Digest embeddings = pack(identity.embeddings);
    const fb::Digest norms = pack(identity.norms);
    const fb::Digest head = pack(identity.head);
    const fb::Digest model = pack(identity.model);
    const fb::Digest tokenizer = pack(identity.tokenizer);
    return fb::CreateIdentity(builder, architecture, config, &embeddings, &norms, attention, mlp,
                              &head, &model, &tokenizer, tokenizer_type, rules, chat_template);
}

fb::SectionRef pack(const SectionRef &ref) {
    return fb::SectionRef(ref.offset, ref.bytes, pack(ref.digest));
}

// Null, which is not written, for a reference to nothing.
const fb::SectionRef *if_any(const fb::SectionRef &ref) {
    return ref.offset() == 0 ? nullptr : &ref;
}

fb::NodeRef pack(const NodeRef &ref) {
    return fb::NodeRef(ref.section, ref.begin, ref.bytes, pack(ref.digest));
}

// In the order of FlatBuffers' generated code, as ManifestFields; sizes only where a group has its
// own, which CreateGroup would always write.
Offset<fb::Group> pack(Builder &builder, const LayerGroup &group, const NodeRef &pages) {
    const auto layers = builder.CreateVector(group.layers);
    const fb::NodeRef packed_pages = pack(pages);
    fb::GroupBuilder table(builder);
    if (group.head_dim != 0) {
        table.add_head_dim(group.head_dim);
    }
    if (group.kv_heads != 0) {
        table.add_kv_heads(group.kv_heads);
    }
    table.add_pages(&packed_pages);
    table.add_layers(layers);
    table.add_window(group.window);
    return table.Finish();
}

auto pack_groups(Builder &builder, const State &state, const Layout &layout) {
    std::vector<Offset<fb::Group>> packed;
    for (size_t group = 0; group < state.groups.size(); ++group) {
        packed.push_back(pack(builder, state.groups[group], layout.pages[group]));
    }
    return builder.CreateVector(packed);
}

Offset<flatbuffers::Vector<uint32_t>> pack_sharing(Builder &builder, const State &state) {
    if (state.sharing.empty()) {
        return {}; // not written
    }
    return builder.CreateVector(state.sharing);
}

Offset<fb::SamplingV2> pack(Builder &builder, const SamplingV2 &from) {
    if (from == SamplingV2()) {
        return {}; // not written
    }
    const auto breakers = builder.CreateVector(from.dry_breakers);
    return fb::CreateSamplingV2(builder, from.typical_p, from.top_n_sigma, from.xtc_probability,
                                from.xtc_threshold, from.dry_multiplier, from.dry_base,
                                from.dry_allowed_length, from.dry_range, from.min_keep, breakers);
}

// In the order of FlatBuffers' generated code.
Offset<fb::SamplingV3> pack(Builder &builder, const SamplingV3 &from, uint32_t constraint) {
    if (from == SamplingV3()) {
        return {}; // not written
    }
    Offset<flatbuffers::Vector<uint8_t>> allowed;
    if (const std::string *bytes = from.allowed.value.get()) {
        allowed =
            builder.CreateVector(reinterpret_cast<const uint8_t *>(bytes->data()), bytes->size());
    }
    return fb::CreateSamplingV3(builder, constraint, allowed);
}

Offset<flatbuffers::Vector<Offset<fb::Constraint>>>
pack_constraints(Builder &builder, const std::vector<const Constraint *> &constraints) {
    if (constraints.empty()) {
        return {}; // not written
    }
    std::vector<Offset<fb::Constraint>> packed;
    for (const Constraint *constraint : constraints) {
        const auto text = builder.CreateString(constraint->text);
        packed.push_back(fb::CreateConstraint(builder, constraint->kind, text));
    }
    return builder.CreateVector(packed);
}

auto pack_samplings(Builder &builder, const std::vector<Sampling> &samplings,
                    const UsedConstraints &constraints) {
    std::vector<Offset<fb::Sampling>> packed;
    for (const Sampling &from : samplings) {
        const auto bias = pack(builder, from.bias);
        const auto v2 = pack(builder, from.v2);
        const auto v3 = pack(builder, from.v3, constraints.of[packed.size()]);
        packed.push_back(fb::CreateSampling(builder, from.seed, from.temperature, from.top_k,
                                            from.top_p, from.min_p, from.repetition_penalty,
                                            from.frequency_penalty, from.presence_penalty,
                                            from.penalty_window, bias, v2, v3));
    }
    return builder.CreateVector(packed);
}

Offset<fb::Profile> pack(Builder &builder, const Profile &profile) {
    if (profile == Profile()) {
        return {}; // not written
    }
    const auto id = builder.CreateString(profile.id);
    std::vector<fb::ProfileChunk> packed;
    uint64_t end = 0;
    for (const ProfileChunk &chunk : profile.chunks) {
        packed.emplace_back(static_cast<uint32_t>(chunk.begin - end), chunk.rows, chunk.padded);
        end = chunk.end();
    }
    return fb::CreateProfile(builder, id, builder.CreateVectorOfStructs(packed), profile.foreign);
}

Offset<fb::Recurrent> pack_recurrent(Builder &builder, const State &state, const Layout &layout) {
    const RecurrentShape &shape = state.recurrent;
    if (shape == RecurrentShape()) {
        return {}; // not written
    }
    const auto layers = builder.CreateVector(shape.layers);
    std::vector<fb::RecurrentState> states;
    for (size_t i = 0; i < state.states.size(); ++i) {
        const RecurrentState &each = state.states[i];
        const StateRef &ref = layout.states[i];
        states.emplace_back(each.position, ref.offset, ref.stored_bytes, pack(each.digest));
    }
    return fb::CreateRecurrent(builder, layers, shape.key_heads, shape.value_heads, shape.key_dim,
                               shape.value_dim, shape.taps, builder.CreateVectorOfStructs(states));
}

// Collects the fields of a manifest and adds them in the order of FlatBuffers' generated code:
// fields of 8 bytes first, and among fields of one size the last id first. Equal states therefore
// give equal bytes, whatever the order of add.
class ManifestFields {
  public:
    using Add = std::function<void(fb::ManifestBuilder &)>;

    void add(flatbuffers::voffset_t id, size_t size_bytes, Add add) {
        fields_.push_back({size_bytes, id, std::move(add)});
    }
    Offset<fb::Manifest> finish(Builder &builder) {
        std::sort(fields_.begin(), fields_.end(), [](const Field &a, const Field &b) {
            return std::pair(a.size_bytes, a.id) > std::pair(b.size_bytes, b.id);
        });
        fb::ManifestBuilder table(builder);
        for (const Field &field : fields_) {
            field.add(table);
        }
        return table.Finish();
    }

  private:
    struct Field {
        size_t size_bytes; // of an integer; structs, offsets and all else count as 4
        flatbuffers::voffset_t id;
        Add add;
    };
    std::vector<Field> fields_;
};

// Adds the numbers of the session, and those that a state has only where its model has such layers,
// or its settings a tree.
void add_numbers(ManifestFields &fields, const State &state, const Layout &layout) {
    const auto add = [&](flatbuffers::voffset_t id, auto value) {
        fields.add(id, sizeof value, [id, value](fb::ManifestBuilder &table) {
            table.fbb_.AddElement(id, value, decltype(value){0});
        });
    };
    each_session_number([&](const auto &number) { add(field_of(number), state.*number.member); });
    if (state.contract.recurrent != 0) {
        add(fb::Manifest::VT_CONTRACT_RECURRENT, state.contract.recurrent);
    }
    if (state.contract.experts != 0) {
        add(fb::Manifest::VT_CONTRACT_EXPERTS, state.contract.experts);
    }
    if (layout.settings != NodeRef()) {
        add(fb::Manifest::VT_SETTING_COUNT, layout.setting_count);
        fields.add(fb::Manifest::VT_SETTINGS, 4,
                   [root = pack(layout.settings)](fb::ManifestBuilder &table) {
                       table.add_settings(&root);
                   });
    }
}

std::vector<uint8_t> bytes_of(const Builder &builder) {
    return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

} // namespace

std::vector<uint8_t> build_identity(const ModelIdentity &identity) {
    check_bound("model's identity", size_bound(identity));
    Builder builder;
    builder.Finish(pack(builder, identity), kIdentityIdentifier);
    return bytes_of(builder);
}

std::vector<uint8_t> build_manifest(const State &state, const Layout &layout) {
    const std::vector<Sampling> listed = listed_settings(state, layout);
    check_bound("manifest", size_bound(state, listed));
    Builder builder;
    builder.ForceDefaults(true); // -0.0 compares equal to a default of 0.0 and would lose its sign

    // Strings, vectors and tables come before the table that refers to them.
    const auto groups = pack_groups(builder, state, layout);
    const UsedConstraints used = constraints_of(listed);
    const auto samplings = pack_samplings(builder, listed, used);
    const auto constraints = pack_constraints(builder, used.all);
    const auto pending_system = builder.CreateString(state.pending_system);
    const auto top = pack(builder, state.top);
    const auto profile = pack(builder, state.profile);
    const auto recurrent = pack_recurrent(builder, state, layout);
    const auto sharing = pack_sharing(builder, state);

    // Structs are copied into the table, which takes their addresses.
    const fb::Contract contract(state.contract.core, state.contract.kv, state.contract.sampling);
    const fb::SectionRef identity = pack(layout.identity);
    const fb::SectionRef hidden = pack(layout.hidden);
    const fb::SectionRef logits_row = pack(layout.logits_row);
    const fb::SectionRef evictions = pack(layout.evictions);
    const fb::SectionRef host_data = pack(layout.host_data);
    const fb::NodeRef log = pack(layout.log);
    const fb::NodeRef texts = pack(layout.texts);
    const fb::Digest logits = pack(state.logits);
    const fb::Digest digest = pack(state.digest);

    // Fields in the order of the schema; finish() sorts them.
    ManifestFields fields;
    const auto add = [&](flatbuffers::voffset_t id, auto adder, auto value) {
        const size_t size_bytes = sizeof value == 8 && std::is_integral_v<decltype(value)> ? 8 : 4;
        fields.add(id, size_bytes,
                   [adder, value](fb::ManifestBuilder &table) { (table.*adder)(value); });
    };
    using Table = fb::Manifest;
    using Make = fb::ManifestBuilder;
    add(Table::VT_CONTRACT, &Make::add_contract, &contract);
    add(Table::VT_IDENTITY, &Make::add_identity, &identity);
    add(Table::VT_LAYERS, &Make::add_layers, state.layers);
    add(Table::VT_KV_HEADS, &Make::add_kv_heads, state.kv_heads);
    add(Table::VT_HEAD_DIM, &Make::add_head_dim, state.head_dim);
    add(Table::VT_HIDDEN_SIZE, &Make::add_hidden_size, state.hidden_size);
    add(Table::VT_VOCABULARY, &Make::add_vocabulary, state.vocabulary);
    add(Table::VT_PAGE_POSITIONS, &Make::add_page_positions, state.page_positions);
    add(Table::VT_GROUPS, &Make::add_groups, groups);
    add(Table::VT_POSITION, &Make::add_position, layout.position);
    add(Table::VT_SAMPLINGS, &Make::add_samplings, samplings);
    add(Table::VT_SAMPLING, &Make::add_sampling, state.sampling);
    add(Table::VT_PENDING_SYSTEM, &Make::add_pending_system, pending_system);
    add(Table::VT_LOGITS, &Make::add_logits, &logits);
    add(Table::VT_TOP, &Make::add_top, top);
    add(Table::VT_DIGEST, &Make::add_digest, &digest);
    add(Table::VT_LOG, &Make::add_log, &log);
    add(Table::VT_TEXTS, &Make::add_texts, &texts);
    add(Table::VT_TEXT_COUNT, &Make::add_text_count, layout.text_count);
    add(Table::VT_KEEP, &Make::add_keep, static_cast<uint32_t>(layout.keep));
    add(Table::VT_HIDDEN, &Make::add_hidden, &hidden);
    add(Table::VT_LOGITS_ROW, &Make::add_logits_row, &logits_row);
    add(Table::VT_EVICTIONS, &Make::add_evictions, if_any(evictions));
    add(Table::VT_HOST_DATA, &Make::add_host_data, if_any(host_data));
    add(Table::VT_PROFILE, &Make::add_profile, profile);
    add(Table::VT_RECURRENT, &Make::add_recurrent, recurrent);
    add(Table::VT_SHARING, &Make::add_sharing, sharing);
    add(Table::VT_CONSTRAINTS, &Make::add_constraints, constraints);
    add_numbers(fields, state, layout);
    builder.Finish(fields.finish(builder), fb::ManifestIdentifier());
    return bytes_of(builder);
}

} // namespace stasis::format
