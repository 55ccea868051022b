// Sessions that draw under constraints: the constraints, and whether a text is one of theirs by
// another program's judgement. Knows the public header.
#pragma once

#include <functional>
#include <regex>

#include "tests/abi/conversation.h"
#include "tests/abi/pulled.h"

namespace abi_test {

struct ConstraintCase {
    const char *name;
    uint32_t kind;
    std::string text;
    std::function<bool(const std::string &)> fits;
};

inline bool is_person(const std::string &text) {
    const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("name") || !json.contains("age")) {
        return false;
    }
    for (const auto &[name, value] : json.items()) {
        const bool right =
            name == "name"   ? value.is_string() && value.get<std::string>().size() <= 40
            : name == "age"  ? value.is_number_integer() && value >= 0 && value <= 120
            : name == "mood" ? value == "good" || value == "bad"
                             : name == "tags" && value.is_array() && value.size() <= 3;
        if (!right) {
            return false;
        }
    }
    return true;
}

// Each can be finished within some 60 tokens.
inline const std::vector<ConstraintCase> &constraint_cases() {
    static const std::vector<ConstraintCase> kCases = {
        {"regex", STASIS_CONSTRAINT_REGEX, "(yes|no|perhaps [a-z]{2,9})(, [a-z]{1,6}){0,3}[.!]",
         [](const std::string &text) {
             static const std::regex kWhole("(yes|no|perhaps [a-z]{2,9})(, [a-z]{1,6}){0,3}[.!]");
             return std::regex_match(text, kWhole);
         }},
        {"grammar", STASIS_CONSTRAINT_GRAMMAR, "root ::= \"x\" root? \"y\" | [0-9]{1,4}\n",
         [](const std::string &text) {
             const size_t xs = text.find_first_not_of('x'), ys = text.size() - xs;
             static const std::regex kWhole("x*[0-9]{0,4}y*");
             return std::regex_match(text, kWhole) && xs != std::string::npos && ys >= xs &&
                    static_cast<size_t>(std::count(text.begin(), text.end(), 'y')) == xs;
         }},
        {"json_schema", STASIS_CONSTRAINT_JSON_SCHEMA,
         R"({"type":"object","properties":{"name":{"type":"string","maxLength":10},)"
         R"("age":{"type":"integer","minimum":0,"maximum":120},"mood":{"enum":["good","bad"]},)"
         R"("tags":{"type":"array","items":{"type":"boolean"},"maxItems":3}},)"
         R"("required":["name","age"],"additionalProperties":false})",
         is_person},
        {"json", STASIS_CONSTRAINT_JSON, "",
         [](const std::string &text) { return nlohmann::json::accept(text); }},
    };
    return kCases;
}

inline stasis_status try_constrain(stasis_session *session, uint32_t kind, const std::string &text,
                                   stasis_error &error) {
    return stasis_session_set_constraint(session, kind, text.data(), text.size(), nullptr, &error);
}

inline void constrain(stasis_session *session, uint32_t kind, const std::string &text) {
    stasis_error error;
    const stasis_status status = try_constrain(session, kind, text, error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
}

inline void set_warm(stasis_session *session, uint64_t seed, float temperature = 1.0F) {
    auto sampling = sized<stasis_sampling>();
    sampling.seed = seed;
    sampling.temperature = temperature;
    REQUIRE(stasis_session_set_sampling(session, &sampling, nullptr) == STASIS_OK);
}

// A conversation whose next tokens are drawn under a constraint.
inline Session constrained(stasis_model *model, const ConstraintCase &of, uint64_t seed = 0) {
    Session session = create(model);
    say(session.get(), "Tell me about Ada, and whether 12 is more than 7.");
    set_warm(session.get(), seed);
    constrain(session.get(), of.kind, of.text);
    return session;
}

inline stasis_model *recall() {
    return shared_model("recall-llama");
}

} // namespace abi_test
