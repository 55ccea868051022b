// The syntax tree of a template: tokens (lexer.cpp) and nodes (parser.cpp). Plain data; eval.cpp
// and compute.cpp give it meaning.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace stasis::jinja {

struct Token {
    enum class Kind { text, output, block, close, name, string, number, symbol, end };
    Kind kind = Kind::end;
    std::string text; // of a string: its characters, escapes resolved
    size_t line = 0;
};

// Returns text and tags, with whitespace control applied. Throws Error(unsupported).
std::vector<Token> split_tokens(std::string_view source);

enum class Kind {
    // Expressions; `children` are the operands in order.
    literal,   // value
    name,      // text
    list,      // children
    dict,      // children: key, value, key, value ...
    attribute, // object; text
    item,      // object, index
    slice,     // object, begin, end, step (null where absent)
    call,      // callee, arguments; names[i] is argument i's keyword or ""
    filter,    // object, arguments; text, names
    test,      // object, arguments; text, names
    unary,     // operand; text: "-", "+", "not"
    binary,    // left, right; text: the operator
    choice,    // value, condition, other (null where absent)
    // Statements; `body` and `other` are statements.
    text,    // text
    output,  // expression
    branch,  // condition; body, other
    loop,    // iterable, filter (null where absent); names; body, other
    assign,  // expression; names (one, or several to unpack); text: attribute of a namespace
    capture, // names[0]; body
    macro,   // text; names: parameters; children: their defaults (null where absent); body
    group,   // body (a generation block)
    break_,
    continue_,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Node {
    Kind kind;
    size_t line = 0;
    int depth = 1; // of nested expressions
    Value value;
    std::string text;
    std::vector<NodePtr> children;
    std::vector<std::string> names;
    std::vector<NodePtr> body, other;
};

std::vector<NodePtr> parse(std::string_view source); // throws Error(unsupported)

// Whether statements use a variable "loop" for more than where a loop is, the item before and after
// and whether there is one (beginnings.cpp).
bool asks_for_lengths(const std::vector<NodePtr> &body);

} // namespace stasis::jinja
