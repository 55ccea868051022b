// Parses statements: converts text, output and block tags to nodes.
#include "runtime/text/jinja/parser.h"

namespace stasis::jinja {

std::vector<NodePtr> Parser::run() {
    std::vector<NodePtr> body = statements();
    if (peek().kind != Token::Kind::end) {
        bad("a tag that opens nothing", peek(1).text);
    }
    return body;
}

// Parses up to a block tag that ends or divides the enclosing block, or to the end.
std::vector<NodePtr> Parser::statements() {
    const Nest nest(*this);
    std::vector<NodePtr> body;
    while (true) {
        const Token &token = peek();
        if (token.kind == Token::Kind::text) {
            body.push_back(make(Kind::text, token.text));
            ++at_;
        } else if (token.kind == Token::Kind::output) {
            ++at_;
            body.push_back(make(Kind::output, "", expression()));
            close();
        } else if (token.kind == Token::Kind::block && !divides(peek(1).text)) {
            ++at_;
            body.push_back(statement());
        } else {
            return body;
        }
    }
}
bool Parser::divides(const std::string &text) {
    return text.starts_with("end") || text == "else" || text == "elif";
}

NodePtr Parser::statement() {
    const std::string tag = name();
    if (tag == "if") {
        return branch();
    }
    if (tag == "for") {
        return loop();
    }
    if (tag == "set") {
        return assign();
    }
    if (tag == "macro") {
        return macro();
    }
    if (tag == "generation") { // marks the assistant's text for training
        close();
        NodePtr node = make(Kind::group, "");
        node->body = statements();
        end_block("endgeneration");
        return node;
    }
    if (tag == "break" || tag == "continue") {
        close();
        return make(tag == "break" ? Kind::break_ : Kind::continue_, "");
    }
    bad("a statement that is not supported", tag);
}

void Parser::end_block(std::string_view tag) {
    if (peek().kind != Token::Kind::block || !is(Token::Kind::name, tag, 1)) {
        bad(("expected '" + std::string(tag) + "'").c_str(), peek(1).text);
    }
    at_ += 2;
    close();
}

// A chain of elifs is flat: `other` of each holds the next, so depth does not grow.
NodePtr Parser::branch() {
    NodePtr first = make(Kind::branch, "", expression());
    close();
    first->body = statements();
    Node *last = first.get();
    int chain = 0;
    while (peek().kind == Token::Kind::block && is(Token::Kind::name, "elif", 1)) {
        if (++chain > kDepthMax) {
            bad("too many elifs", "elif");
        }
        at_ += 2;
        NodePtr next = make(Kind::branch, "", expression());
        close();
        next->body = statements();
        Node *following = next.get();
        last->other.push_back(std::move(next));
        last = following;
    }
    if (peek().kind == Token::Kind::block && is(Token::Kind::name, "else", 1)) {
        at_ += 2;
        close();
        last->other = statements();
    }
    end_block("endif");
    return first;
}

NodePtr Parser::loop() {
    NodePtr node = make(Kind::loop, "");
    do {
        node->names.push_back(name());
    } while (take_symbol(","));
    if (!take_word("in")) {
        bad("expected 'in'", peek().text);
    }
    append(*node, disjunction());
    append(*node, take_word("if") ? expression() : nullptr);
    close();
    node->body = statements();
    if (peek().kind == Token::Kind::block && is(Token::Kind::name, "else", 1)) {
        at_ += 2;
        close();
        node->other = statements();
    }
    end_block("endfor");
    return node;
}

NodePtr Parser::assign() {
    NodePtr node = make(Kind::assign, "");
    do {
        node->names.push_back(name());
    } while (take_symbol(","));
    if (take_symbol(".")) {
        node->text = name();
    }
    if (take_symbol("=")) {
        append(*node, expression());
        close();
        // Without "=", the body's rendering is the value.
    } else if (node->names.size() == 1 && node->text.empty()) {
        close();
        node->kind = Kind::capture;
        node->body = statements();
        end_block("endset");
    } else {
        bad("expected '='", peek().text);
    }
    return node;
}

NodePtr Parser::macro() {
    NodePtr node = make(Kind::macro, name());
    expect("(");
    while (!take_symbol(")")) {
        node->names.push_back(name());
        append(*node, take_symbol("=") ? expression() : nullptr);
        if (!symbol(")")) {
            expect(",");
        }
    }
    close();
    node->body = statements();
    end_block("endmacro");
    return node;
}

std::vector<NodePtr> parse(std::string_view source) {
    return Parser(source).run();
}

} // namespace stasis::jinja
