// Parses the expressions of a template. Precedence is as in the Jinja manual ("Expressions"), with
// one function for each level.
#include <charconv>

#include "runtime/text/jinja/parser.h"

namespace stasis::jinja {

NodePtr Parser::expression() {
    const Nest nest(*this);
    NodePtr value = disjunction();
    while (take_word("if")) {
        NodePtr condition = disjunction();
        NodePtr other = take_word("else") ? expression() : nullptr;
        value = make(Kind::choice, "", std::move(value), std::move(condition), std::move(other));
    }
    return value;
}

NodePtr Parser::disjunction() {
    NodePtr left = conjunction();
    while (take_word("or")) {
        left = make(Kind::binary, "or", std::move(left), conjunction());
    }
    return left;
}

NodePtr Parser::conjunction() {
    NodePtr left = negation();
    while (take_word("and")) {
        left = make(Kind::binary, "and", std::move(left), negation());
    }
    return left;
}

NodePtr Parser::negation() {
    const Nest nest(*this);
    return take_word("not") ? make(Kind::unary, "not", negation()) : comparison();
}

NodePtr Parser::comparison() {
    NodePtr left = sum();
    const std::string text = comparison_operator();
    if (text.empty()) {
        return left;
    }
    left = make(Kind::binary, text, std::move(left), sum());
    if (!comparison_operator().empty()) {
        bad("chained comparisons are not supported", peek().text);
    }
    return left;
}
std::string Parser::comparison_operator() {
    for (const char *text : {"==", "!=", "<", "<=", ">", ">="}) {
        if (take_symbol(text)) {
            return text;
        }
    }
    if (take_word("in")) {
        return "in";
    }
    if (word("not") && is(Token::Kind::name, "in", 1)) {
        at_ += 2;
        return "not in";
    }
    return "";
}

NodePtr Parser::sum() {
    NodePtr left = concatenation();
    while (symbol("+") || symbol("-")) {
        const std::string text = tokens_[at_++].text;
        left = make(Kind::binary, text, std::move(left), concatenation());
    }
    return left;
}

NodePtr Parser::concatenation() {
    NodePtr left = product();
    while (take_symbol("~")) {
        left = make(Kind::binary, "~", std::move(left), product());
    }
    return left;
}

NodePtr Parser::product() {
    NodePtr left = sign();
    while (symbol("*") || symbol("/") || symbol("//") || symbol("%")) {
        const std::string text = tokens_[at_++].text;
        left = make(Kind::binary, text, std::move(left), sign());
    }
    return left;
}

NodePtr Parser::sign() {
    const Nest nest(*this);
    if (symbol("-") || symbol("+")) {
        const std::string text = tokens_[at_++].text;
        return filtered(make(Kind::unary, text, sign()));
    }
    return filtered(postfix(primary()));
}

NodePtr Parser::postfix(NodePtr node) {
    while (true) {
        if (take_symbol(".")) {
            const bool index = peek().kind == Token::Kind::number;
            node = index ? make(Kind::item, "", std::move(node), primary())
                         : make(Kind::attribute, name(), std::move(node));
        } else if (take_symbol("[")) {
            node = subscript(std::move(node));
        } else if (symbol("(")) {
            node = make(Kind::call, "", std::move(node));
            arguments(*node);
        } else {
            return node;
        }
    }
}

NodePtr Parser::subscript(NodePtr node) {
    NodePtr parts[3];
    int colons = 0;
    // Up to three parts, each of which may be missing.
    while (!symbol("]")) {
        if (take_symbol(":")) {
            if (++colons > 2) {
                bad("too many colons in a slice", ":");
            }
        } else if (parts[colons] != nullptr) {
            bad("expected ']'", peek().text);
        } else {
            parts[colons] = expression();
        }
    }
    expect("]");
    if (colons > 0) {
        return make(Kind::slice, "", std::move(node), std::move(parts[0]), std::move(parts[1]),
                    std::move(parts[2]));
    }
    if (parts[0] == nullptr) {
        bad("expected an index", "]");
    }
    return make(Kind::item, "", std::move(node), std::move(parts[0]));
}

void Parser::arguments(Node &node) {
    expect("(");
    while (!take_symbol(")")) {
        const bool keyword = peek().kind == Token::Kind::name && is(Token::Kind::symbol, "=", 1);
        node.names.push_back(keyword ? name() : "");
        at_ += keyword ? 1 : 0;
        append(node, expression());
        if (!symbol(")")) {
            expect(",");
        }
    }
}

NodePtr Parser::filtered(NodePtr node) {
    while (true) {
        if (take_symbol("|")) {
            node = make(Kind::filter, name(), std::move(node));
            if (symbol("(")) {
                arguments(*node);
            }
        } else if (take_word("is")) {
            const bool negated = take_word("not");
            node = make(Kind::test, name(), std::move(node));
            if (symbol("(")) {
                arguments(*node);
            } else if (starts_argument()) {
                node->names.emplace_back();
                append(*node, postfix(primary()));
            }
            if (negated) {
                node = make(Kind::unary, "not", std::move(node));
            }
        } else {
            return node;
        }
    }
}
// Reports whether an argument without parentheses follows a test ("is divisibleby 3").
bool Parser::starts_argument() const {
    const Token &token = peek();
    if (token.kind == Token::Kind::name) {
        return !word("else") && !word("or") && !word("and") && !word("is") && !word("if") &&
               !word("not") && !word("in");
    }
    return token.kind == Token::Kind::string || token.kind == Token::Kind::number || symbol("[") ||
           symbol("{");
}

NodePtr Parser::primary() {
    const Token token = peek();
    ++at_;
    switch (token.kind) {
    case Token::Kind::string: {
        std::string text = token.text;
        // Adjacent strings are one.
        while (peek().kind == Token::Kind::string) {
            text += tokens_[at_++].text;
        }
        return literal(Value(std::move(text)));
    }
    case Token::Kind::number:
        return number(token.text);
    case Token::Kind::name:
        if (token.text == "true" || token.text == "True" || token.text == "false" ||
            token.text == "False") {
            return literal(Value(Value::Data(token.text == "true" || token.text == "True")));
        }
        if (token.text == "none" || token.text == "None") {
            return literal(Value(Value::Data(None{})));
        }
        return make(Kind::name, token.text);
    case Token::Kind::symbol:
        if (token.text == "(" || token.text == "[") {
            return sequence(token.text == "(" ? ")" : "]");
        }
        if (token.text == "{") {
            return dict();
        }
        break;
    default:
        break;
    }
    --at_;
    bad("expected an expression", token.text);
}

NodePtr Parser::literal(Value value) {
    NodePtr node = make(Kind::literal, "");
    node->value = std::move(value);
    return node;
}

NodePtr Parser::number(const std::string &text) {
    int64_t integer = 0;
    double real = 0.0;
    const char *begin = text.data(), *end = begin + text.size();
    const auto [last, failure] = std::from_chars(begin, end, integer);
    if (last == end && failure == std::errc()) {
        return literal(Value(Value::Data(integer)));
    }
    if (std::from_chars(begin, end, real).ptr != end) {
        bad("not a number", text);
    }
    return literal(Value(Value::Data(real)));
}

// Parses after "(" or "[": a list, or for "(x)" the expression itself.
NodePtr Parser::sequence(const char *end) {
    NodePtr node = make(Kind::list, "");
    bool comma = false;
    while (!take_symbol(end)) {
        append(*node, expression());
        if (!symbol(end)) {
            expect(",");
            comma = true;
        }
    }
    const bool grouped = *end == ')' && node->children.size() == 1 && !comma;
    return grouped ? std::move(node->children.front()) : std::move(node);
}

NodePtr Parser::dict() {
    NodePtr node = make(Kind::dict, "");
    while (!take_symbol("}")) {
        append(*node, expression());
        expect(":");
        append(*node, expression());
        if (!symbol("}")) {
            expect(",");
        }
    }
    return node;
}

} // namespace stasis::jinja
