// The evaluator of syntax trees. eval.cpp has the statements and variables, compute.cpp the
// expressions. Included by these two only.
#pragma once

#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "format/state/error.h"
#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/syntax.h"

namespace stasis::jinja {

enum class Flow { next, break_, continue_ };

class Evaluator {
  public:
    Evaluator(const Dict &variables, std::optional<std::time_t> date, Budget &budget);

    Flow run(const std::vector<NodePtr> &body);
    std::string take_output() { return std::move(out_); }

  private:
    using Scope = std::map<std::string, Value, std::less<>>;

    struct Descent {
        Evaluator &evaluator;
        explicit Descent(Evaluator &e) : evaluator(e) {
            if (++evaluator.depth_ > kDepthMax) {
                fail(Status::unsupported, "chat template: evaluation nested too deep");
            }
        }
        ~Descent() { --evaluator.depth_; }
    };

    [[noreturn]] static void bad(const Node &node, const char *what, const Value &value) {
        fail(Status::unsupported, "chat template, line %zu: %s %s", node.line, what,
             type_name(value));
    }

    // Variables (eval.cpp).

    void set(const std::string &name, Value value) { scopes_.back()[name] = std::move(value); }
    Value lookup(const std::string &name) const;
    void unpack(const Node &node, const Value &value);

    // Statements (eval.cpp).

    Flow statement(const Node &node);
    Flow branch(const Node &node);
    std::string captured(const std::vector<NodePtr> &body);
    void assign(const Node &node);
    Flow loop(const Node &node);
    static Value loop_variable(const List &items, size_t i);

    // Expressions (compute.cpp).

    Value eval(const Node &node);
    Value eval_or_undefined(const NodePtr &node);
    Value compute(const Node &node);
    Value dict(const Node &node);
    Arguments arguments(const Node &node);
    Value call(const Node &node);
    Value call_macro(const Node &macro, const Arguments &given);
    Value unary(const Node &node);
    Value binary(const Node &node);
    Value repeated(const std::string &text, int64_t count);
    bool ordered(const Node &node, const Value &left, const Value &right);
    static Value real_arithmetic(const Node &node, const Value &left, const Value &right);
    static Value arithmetic(const Node &node, const std::string &op, int64_t a, int64_t b);

    // Nested evaluations of nodes, including macro calls.
    static constexpr int kDepthMax = 200;

    std::vector<Scope> scopes_;
    size_t base_ = 0; // first scope of the macro being run
    int depth_ = 0;
    std::string out_;
    std::optional<std::time_t> date_;
    Budget &budget_;
};

} // namespace stasis::jinja
