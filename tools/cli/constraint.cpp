// Constraints of the command line and of snapshots; see constraint.h.
#include "tools/cli/constraint.h"

#include "tools/cli/model.h"

namespace command {

namespace {

struct NamedKind {
    const char *name;
    uint32_t kind;
};
// As the JSON of snapshots calls them.
constexpr NamedKind kKinds[] = {{"json_schema", STASIS_CONSTRAINT_JSON_SCHEMA},
                                {"json", STASIS_CONSTRAINT_JSON},
                                {"regex", STASIS_CONSTRAINT_REGEX},
                                {"grammar", STASIS_CONSTRAINT_GRAMMAR}};

void set(stasis_session *session, uint32_t kind, const std::string &text, stasis_cancel *cancel,
         const std::string &what) {
    stasis_error error{};
    check(stasis_session_set_constraint(session, kind, text.data(), text.size(), cancel, &error),
          error, what);
}

} // namespace

void add_constraint_options(CLI::App &app, ConstraintChoice &choice) {
    const auto chosen = [&choice](uint32_t kind, bool in_file) {
        return [&choice, kind, in_file](const CLI::results_t &given) {
            choice = {true, kind, given.at(0), in_file};
            return true;
        };
    };
    const auto flag = [&choice](uint32_t kind) {
        return [&choice, kind](int64_t) { choice = {true, kind, "", false}; };
    };
    const std::vector<CLI::Option *> options = {
        app.add_option("--json-schema", chosen(STASIS_CONSTRAINT_JSON_SCHEMA, true),
                       "each reply is an instance of the JSON schema in this file")
            ->type_name("FILE"),
        app.add_option("--grammar", chosen(STASIS_CONSTRAINT_GRAMMAR, true),
                       "each reply is a text of the grammar (GBNF) in this file")
            ->type_name("FILE"),
        app.add_option("--regex", chosen(STASIS_CONSTRAINT_REGEX, false),
                       "each reply matches this regular expression as a whole")
            ->type_name("TEXT"),
        app.add_flag_function("--json-text", flag(STASIS_CONSTRAINT_JSON),
                              "each reply is a JSON value"),
        app.add_flag_function("--unconstrained", flag(STASIS_CONSTRAINT_NONE),
                              "end the constraint of a resumed session")};
    for (size_t i = 0; i < options.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
            options[i]->excludes(options[j]);
        }
    }
}

void apply_constraint(stasis_session *session, const ConstraintChoice &choice,
                      stasis_cancel *cancel) {
    if (choice.given) {
        set(session, choice.kind, choice.in_file ? read_file(choice.value) : choice.value, cancel,
            choice.in_file ? choice.value : "constraint");
    }
}

bool is_constrained(const Json &settings) {
    return settings.contains("constraint") || settings.contains("allowed");
}

const std::vector<uint32_t> &StoredSets::bits(size_t index) {
    while (known_.size() <= index) {
        const Json &settings = samplings_.at(known_.size());
        std::vector<uint32_t> bits;
        if (settings.contains("allowed")) {
            if (settings.contains("allowed_from")) {
                bits = known_.at(settings["allowed_from"].get<size_t>());
            }
            bits.resize((size_t{vocabulary_} + 31) / 32);
            const auto runs = settings["allowed"].get<std::vector<uint32_t>>();
            for (size_t i = 0; i + 1 < runs.size(); i += 2) {
                for (uint32_t token = runs[i]; token < std::min(runs[i + 1], vocabulary_);
                     ++token) {
                    bits[token / 32] ^= 1U << token % 32;
                }
            }
        }
        known_.push_back(std::move(bits));
    }
    return known_[index];
}

void apply_stored_constraint(stasis_session *session, const Json &config, size_t index,
                             StoredSets &sets) {
    const Json &settings = config["samplings"].at(index);
    uint32_t kind = STASIS_CONSTRAINT_NONE;
    std::string text;
    if (settings.contains("constraint")) {
        const Json &constraint = config["constraints"].at(settings["constraint"].get<size_t>());
        for (const NamedKind &each : kKinds) {
            kind = constraint["kind"] == each.name ? each.kind : kind;
        }
        text = constraint["text"];
    }
    set(session, kind, text, nullptr, "constraint in the file");
    const std::vector<uint32_t> &bits = sets.bits(index);
    stasis_error error{};
    check(stasis_session_set_allowed(session, bits.empty() ? nullptr : bits.data(), bits.size(),
                                     &error),
          error, "allowed tokens in the file");
}

} // namespace command
