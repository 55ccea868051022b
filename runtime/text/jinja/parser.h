// The recursive descent from tokens to syntax tree. parser.cpp has the statements, expression.cpp
// the expressions. Included by these two only.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/state/error.h"
#include "runtime/text/jinja/syntax.h"

namespace stasis::jinja {

class Parser {
  public:
    explicit Parser(std::string_view source) : tokens_(split_tokens(source)) {}

    std::vector<NodePtr> run();

  private:
    // Tokens.

    const Token &peek(size_t ahead = 0) const {
        return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
    }
    bool is(Token::Kind kind, std::string_view text, size_t ahead = 0) const {
        return peek(ahead).kind == kind && peek(ahead).text == text;
    }
    bool symbol(std::string_view text) const { return is(Token::Kind::symbol, text); }
    bool word(std::string_view text) const { return is(Token::Kind::name, text); }
    bool take_symbol(std::string_view text) { return symbol(text) && (++at_, true); }
    bool take_word(std::string_view text) { return word(text) && (++at_, true); }

    [[noreturn]] void bad(const char *what, const std::string &found) const {
        fail(Status::unsupported, "chat template, line %zu: %s ('%.40s')", peek().line, what,
             found.c_str());
    }
    void expect(std::string_view text) {
        if (!take_symbol(text)) {
            bad(("expected '" + std::string(text) + "'").c_str(), peek().text);
        }
    }
    std::string name() {
        if (peek().kind != Token::Kind::name) {
            bad("expected a name", peek().text);
        }
        return tokens_[at_++].text;
    }
    void close() {
        if (peek().kind != Token::Kind::close) {
            bad("expected the end of the tag", peek().text);
        }
        ++at_;
    }

    // Nodes.

    struct Nest { // counts the depth of the descent
        Parser &parser;
        explicit Nest(Parser &p) : parser(p) {
            if (++parser.nest_ > kDepthMax) {
                parser.bad("nested too deep", parser.peek().text);
            }
        }
        ~Nest() { --parser.nest_; }
    };

    template <class... Children> NodePtr make(Kind kind, std::string text, Children... children) {
        auto node = std::make_unique<Node>();
        node->kind = kind;
        node->line = peek().line;
        node->text = std::move(text);
        (node->children.push_back(std::move(children)), ...);
        for (const NodePtr &child : node->children) {
            deepen(*node, child);
        }
        return node;
    }
    void deepen(Node &node, const NodePtr &child) const {
        if (child != nullptr && child->depth >= node.depth) {
            node.depth = child->depth + 1;
        }
        if (node.depth > kDepthMax) {
            bad("an expression nested too deep", peek().text);
        }
    }
    void append(Node &node, NodePtr child) const {
        deepen(node, child);
        node.children.push_back(std::move(child));
    }

    // Statements (parser.cpp).

    std::vector<NodePtr> statements();
    static bool divides(const std::string &text);
    NodePtr statement();
    void end_block(std::string_view tag);
    NodePtr branch();
    NodePtr loop();
    NodePtr assign();
    NodePtr macro();

    // Expressions, from the loosest binding on (expression.cpp).

    NodePtr expression();
    NodePtr disjunction();
    NodePtr conjunction();
    NodePtr negation();
    NodePtr comparison();
    std::string comparison_operator();
    NodePtr sum();
    NodePtr concatenation();
    NodePtr product();
    NodePtr sign();
    NodePtr postfix(NodePtr node);
    NodePtr subscript(NodePtr node);
    void arguments(Node &node);
    NodePtr filtered(NodePtr node);
    bool starts_argument() const;
    NodePtr primary();
    NodePtr literal(Value value);
    NodePtr number(const std::string &text);
    NodePtr sequence(const char *end);
    NodePtr dict();

    static constexpr int kDepthMax = 64; // limit of nested blocks, and of nested expressions

    std::vector<Token> tokens_;
    size_t at_ = 0;
    int nest_ = 0;
};

} // namespace stasis::jinja
