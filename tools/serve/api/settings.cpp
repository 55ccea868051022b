// What OpenAI's forms of generation have in common.
#include "tools/serve/api/settings.h"

#include <cfloat>
#include <charconv>
#include <limits>

#include "tools/serve/api/conversation.h"

namespace serve::api {

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

std::optional<float> to_float(const std::optional<double> &value) {
    return value ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
}

void read_bias(Members &body, GenerationRequest &request) {
    const Json *given = body.find("logit_bias");
    if (given == nullptr) {
        return;
    }
    const std::string place = body.place_of("logit_bias");
    Members biases(*given, place);
    for (const auto &[name, value] : given->items()) {
        stasis_token token = 0;
        const auto read = std::from_chars(name.data(), name.data() + name.size(), token);
        if (read.ec != std::errc() || read.ptr != name.data() + name.size()) {
            refuse(place, "'" + place + "' has the key '" + name + "', which is no token's number");
        }
        if (const auto bias = biases.number(name.c_str(), -100, 100)) {
            request.bias.emplace_back(token, static_cast<float>(*bias));
        }
    }
}

// A regular expression that matches one of these texts.
std::string one_of(const Json &texts, const std::string &place) {
    std::string regex;
    if (!texts.is_array() || texts.empty()) {
        refuse(place, "'" + place + "' must be a list of strings", "invalid_type");
    }
    for (const Json &text : texts) {
        if (!text.is_string()) {
            refuse(place, "'" + place + "' must be a list of strings", "invalid_type");
        }
        regex += regex.empty() ? "(?:" : "|(?:";
        for (const char c : text.get<std::string>()) {
            regex += std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos
                         ? std::string{'\\', c}
                         : std::string{c};
        }
        regex += ")";
    }
    return regex;
}

void set_form(GenerationRequest &request, Form form, const std::string &place) {
    if (request.form.kind != STASIS_CONSTRAINT_NONE) {
        refuse(place, "'" + place + "' is a second form of the reply; only one can be given");
    }
    request.form = std::move(form);
}

// One object's forms; `prefix` is "guided_" or "".
void read_forms(Members &from, const std::string &prefix, GenerationRequest &request) {
    const auto name = [&](const char *kind) { return prefix + kind; };
    if (const Json *schema = from.find(name("json").c_str())) {
        const std::string place = from.place_of(name("json"));
        if (!schema->is_object() && !schema->is_string() && !schema->is_boolean()) {
            refuse(place, "'" + place + "' must be a JSON schema", "invalid_type");
        }
        set_form(request,
                 {STASIS_CONSTRAINT_JSON_SCHEMA,
                  schema->is_string() ? schema->get<std::string>() : schema->dump()},
                 place);
    }
    if (const auto regex = from.text(name("regex").c_str())) {
        set_form(request, {STASIS_CONSTRAINT_REGEX, *regex}, from.place_of(name("regex")));
    }
    if (const auto grammar = from.text(name("grammar").c_str())) {
        set_form(request, {STASIS_CONSTRAINT_GRAMMAR, *grammar}, from.place_of(name("grammar")));
    }
    if (const Json *choice = from.find(name("choice").c_str())) {
        const std::string place = from.place_of(name("choice"));
        set_form(request, {STASIS_CONSTRAINT_REGEX, one_of(*choice, place)}, place);
    }
    if (from.flag(name("json_object").c_str()).value_or(false)) {
        set_form(request, {STASIS_CONSTRAINT_JSON_SCHEMA, R"({"type":"object"})"},
                 from.place_of(name("json_object")));
    }
}

} // namespace

void read_sampling(Members &body, GenerationRequest &request) {
    request.temperature = to_float(body.number("temperature", 0, 2));
    request.top_p = to_float(body.number("top_p", 0, 1));
    request.min_p = to_float(body.number("min_p", 0, 1));
    request.repetition_penalty = to_float(body.number("repetition_penalty", FLT_MIN, 100));
    request.frequency_penalty = to_float(body.number("frequency_penalty", -2, 2));
    request.presence_penalty = to_float(body.number("presence_penalty", -2, 2));
    // -1 and 0: off, as elsewhere.
    if (const auto top_k = body.integer("top_k", -1, std::numeric_limits<int32_t>::max())) {
        request.top_k = *top_k < 0 ? 0 : static_cast<uint32_t>(*top_k);
    }
    if (const auto seed = body.integer("seed", -kMost - 1, kMost)) {
        request.seed = static_cast<uint64_t>(*seed);
    }
    read_bias(body, request);
}

void read_stops(Members &body, const char *name, GenerationRequest &request) {
    const Json *stop = body.find(name);
    if (stop == nullptr) {
        return;
    }
    const std::string place = body.place_of(name);
    for (const Json &text : stop->is_array() ? *stop : Json::array({*stop})) {
        if (!text.is_string()) {
            refuse(place, "'" + place + "' must be a string or a list of strings", "invalid_type");
        }
        request.stops.push_back(text.get<std::string>());
        // The library takes them as C strings.
        if (request.stops.back().empty() || request.stops.back().find('\0') != std::string::npos) {
            refuse(place, "'" + place + "' has an empty string, or one with a NUL character");
        }
    }
    if (request.stops.size() > 64) {
        refuse(place, "'" + place + "' has more than 64 strings");
    }
}

void read_delivery(Members &body, GenerationRequest &request) {
    request.model = body.text("model").value_or("");
    request.stream = body.flag("stream").value_or(false);
    request.choices = static_cast<uint32_t>(body.integer("n", 1, 128).value_or(1));
    if (const Json *options = body.find("stream_options")) {
        Members members(*options, "stream_options");
        request.stream_usage = members.flag("include_usage").value_or(false);
        members.ignore({"include_obfuscation"});
        if (members.flag("continuous_usage_stats").value_or(false)) {
            members.unsupported({"continuous_usage_stats"});
        }
        members.refuse_others();
    }
}

Form schema_form(Members &described) {
    described.ignore({"name", "description", "strict", "type"});
    const Json *schema = described.find("schema");
    described.refuse_others();
    if (schema == nullptr) {
        return {STASIS_CONSTRAINT_JSON, ""};
    }
    if (!schema->is_object() && !schema->is_boolean()) {
        refuse(described.place_of("schema"),
               "'" + described.place_of("schema") + "' must be a JSON schema", "invalid_type");
    }
    return {STASIS_CONSTRAINT_JSON_SCHEMA, schema->dump()};
}

void read_guided_forms(Members &body, GenerationRequest &request) {
    read_forms(body, "guided_", request);
    body.ignore({"guided_decoding_backend"});
    if (const Json *outputs = body.find("structured_outputs")) {
        Members members(*outputs, "structured_outputs");
        read_forms(members, "", request);
        members.refuse_others();
    }
}

void read_tool_choice(Members &body, const char *function, const Json &tools,
                      GenerationRequest &request) {
    const Json *choice = body.find("tool_choice");
    const std::string place = body.place_of("tool_choice");
    if (choice == nullptr || *choice == "auto") {
        return;
    }
    if (*choice == "none") {
        request.answer = Answer::none;
        return;
    }
    request.answer = Answer::tool;
    if (*choice != "required") {
        if (choice->is_string()) {
            refuse(place, "'" + place + "' must be none, auto, required or a function");
        }
        Members members(*choice, place);
        const std::string type = members.needed_text("type");
        if (type != "function") {
            refuse(members.place_of("type"),
                   "'" + place + "' of type '" + type + "' is not supported; only 'function' is",
                   "unsupported_value");
        }
        if (function != nullptr) {
            Members named(members.needed(function), members.place_of(function));
            request.tool = named.needed_text("name");
        } else {
            request.tool = members.needed_text("name");
        }
    }
    if (tools.empty() || (!request.tool.empty() && !has_tool(tools, request.tool))) {
        refuse(place, request.tool.empty()
                          ? "'" + place + "' demands a tool, and there are no 'tools'"
                          : "'" + place + "' names '" + request.tool + "', which 'tools' lacks");
    }
}

} // namespace serve::api
