// Chooses the reader of a constraint's kind; see constraint.h.
#include "runtime/constraint/constraint.h"

#include "format/state/error.h"
#include "runtime/constraint/gbnf.h"
#include "runtime/constraint/grammar.h"
#include "runtime/constraint/json_parts.h"
#include "runtime/constraint/places.h"
#include "runtime/constraint/regex.h"
#include "runtime/constraint/schema.h"

namespace stasis::constraint {

std::shared_ptr<const Automaton> compile_constraint(ConstraintKind kind, std::string_view text,
                                                    const Watch &watch) {
    if (text.size() > kConstraintBytesMax) {
        fail(Status::unsupported, "the constraint has %zu bytes, of at most %zu", text.size(),
             kConstraintBytesMax);
    }
    watch.look(0, 0);
    Grammar grammar;
    switch (kind) {
    case ConstraintKind::json_schema:
        read_schema(grammar, text);
        break;
    case ConstraintKind::grammar:
        read_gbnf(grammar, text);
        break;
    case ConstraintKind::json:
        if (!text.empty()) {
            fail(Status::invalid_argument, "a constraint of kind json has no text");
        }
        grammar.root = grammar.add_rule("root");
        grammar.rules[grammar.root].body = JsonParts(grammar).any();
        break;
    case ConstraintKind::regex:
        grammar.root = grammar.add_rule("root");
        grammar.rules[grammar.root].body = read_regex(grammar, text, RegexUse::whole);
        break;
    default:
        fail(Status::invalid_argument, "constraint kind %u", static_cast<unsigned>(kind));
    }
    const auto automaton = std::make_shared<const Automaton>(compile(grammar, watch));
    const Places start(automaton); // refused where even the empty text has too many readings
    return automaton;
}

} // namespace stasis::constraint
