// Sampling settings as JSON; see sampling_json.h.
#include "format/sampling_json.h"

#include <map>

#include "format/set_code.h"
#include "format/state/token_set.h"

namespace stasis::format {

namespace {

using ConstraintIndices = std::map<const Constraint *, uint32_t>;

// What version 3 of sampling added is written where it is used, so that other sessions are told of
// as before; and constraints once, as in the file, which many settings may share.
ConstraintIndices write_constraints(const State &state, JsonWriter &json) {
    static constexpr const char *kKinds[] = {"", "json_schema", "json", "regex", "grammar"};
    ConstraintIndices indices;
    for (const Sampling &sampling : state.samplings) {
        const Constraint *constraint = sampling.v3.constraint.value.get();
        const auto index = static_cast<uint32_t>(indices.size());
        if (constraint == nullptr || !indices.emplace(constraint, index).second) {
            continue;
        }
        if (index == 0) {
            json.key("constraints").begin_array();
        }
        json.begin_object().field("kind", kKinds[constraint->kind]);
        json.field("text", constraint->text).end_object();
    }
    if (!indices.empty()) {
        json.end_array();
    }
    return indices;
}

// Writes a set of tokens as begin and end of each run. One that the file tells by what it differs
// in from another is told so here, or a small file would fill a large text.
void write_set(const Snapshot &snapshot, size_t index, JsonWriter &json) {
    const State &state = snapshot.state();
    const std::string *set = state.samplings[index].v3.allowed.value.get();
    if (set == nullptr) {
        return;
    }
    const std::vector<SettingRecord> &records = snapshot.contents()->settings;
    if (records.empty()) {
        json.array("allowed", *decode_tokens(*set, state.vocabulary));
        return;
    }
    const SettingRecord &record = records[index];
    if (record.from > 0) {
        json.field("allowed_from", index - record.from);
    }
    json.key("allowed").begin_array();
    visit_runs(record.code, record.edges, state.vocabulary,
               [&](uint32_t edge) { json.value(edge); });
    json.end_array();
}

void write_sampling(const Snapshot &snapshot, size_t index, const ConstraintIndices &indices,
                    JsonWriter &json) {
    const Sampling &sampling = snapshot.state().samplings[index];
    const SamplingV2 &v2 = sampling.v2;
    json.begin_object();
    json.field("seed", sampling.seed);
    json.field("temperature", sampling.temperature);
    json.field("top_k", sampling.top_k);
    json.field("top_p", sampling.top_p);
    json.field("min_p", sampling.min_p);
    json.field("repetition_penalty", sampling.repetition_penalty);
    json.field("frequency_penalty", sampling.frequency_penalty);
    json.field("presence_penalty", sampling.presence_penalty);
    json.field("penalty_window", sampling.penalty_window);
    json.key("bias").begin_array();
    for (const auto &[token, value] :
         sampling.bias) { // an infinity becomes null: a forbidden token
        json.begin_object().field("token", token).field("bias", value).end_object();
    }
    json.end_array();
    json.field("typical_p", v2.typical_p);
    json.field("top_n_sigma", v2.top_n_sigma);
    json.field("xtc_probability", v2.xtc_probability);
    json.field("xtc_threshold", v2.xtc_threshold);
    json.field("dry_multiplier", v2.dry_multiplier);
    json.field("dry_base", v2.dry_base);
    json.field("dry_allowed_length", v2.dry_allowed_length);
    json.field("dry_range", v2.dry_range);
    json.array("dry_breakers", v2.dry_breakers);
    json.field("min_keep", v2.min_keep);
    if (const Constraint *constraint = sampling.v3.constraint.value.get()) {
        json.field("constraint", indices.at(constraint));
    }
    write_set(snapshot, index, json);
    json.end_object();
}

} // namespace

void write_samplings(const Snapshot &snapshot, JsonWriter &json) {
    const ConstraintIndices indices = write_constraints(snapshot.state(), json);
    json.key("samplings").begin_array();
    for (size_t index = 0; index < snapshot.state().samplings.size(); ++index) {
        write_sampling(snapshot, index, indices, json);
    }
    json.end_array();
}

} // namespace stasis::format
