// The evaluator of syntax trees. eval.cpp has the statements and variables, compute.cpp the
// expressions, beginnings.cpp the rendering of a conversation's beginnings together with it.
// Included by these three only.
#pragma once

#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/state/error.h"
#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/jinja.h"
#include "runtime/text/jinja/open_list.h"
#include "runtime/text/jinja/syntax.h"

namespace stasis::jinja {

enum class Flow { next, break_, continue_ };

// The beginnings of a conversation that a rendering of all of it still stands for.
struct Beginnings {
    std::shared_ptr<OpenMessages> messages;
    size_t next = 1; // messages of the smallest of them; all larger ones are among them
    const TakeBeginning &take;
};

class Evaluator {
  public:
    Evaluator(const Dict &variables, std::optional<std::time_t> date, Budget &budget);

    Flow run(const std::vector<NodePtr> &body);
    std::string take_output() { return std::move(out_); }
    // Runs a template for a whole conversation, and reports its beginnings.
    void run_beginnings(const std::vector<NodePtr> &body, Beginnings &beginnings);

  private:
    using Scope = std::map<std::string, Value, std::less<>>;
    using Scopes = std::vector<Scope>;

    // Where a rendering goes on after the statement that it runs.
    struct Place {
        const std::vector<NodePtr> *body;
        size_t next;
        int depth;
    };
    // A rendering before a round of a loop.
    struct Branch {
        Scopes scopes;
        size_t written; // bytes
        size_t budget;
    };

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
    Flow round(const Node &node, std::span<const Value> items, size_t i);
    static Value loop_variable(std::span<const Value> items, size_t i);

    // Beginnings (beginnings.cpp).

    Evaluator(const Evaluator &whole, Scopes scopes, Budget &budget);
    static Scopes copied(const Scopes &scopes);
    Flow open_loop(const Node &node, const OpenList &list);
    void report(const Node &node, const OpenList &list, size_t i, size_t count,
                const Branch &before);
    void finish(const Node &node, const OpenList &list, size_t i);
    OpenList *compared_length(const Node &node) const;

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

    Scopes scopes_;
    size_t base_ = 0; // first scope of the macro being run
    int depth_ = 0;
    int inside_ = 0;          // loops and captured texts around the statement
    std::vector<Place> path_; // from the template's body to the statement
    Beginnings *beginnings_ = nullptr;
    std::string out_;
    std::optional<std::time_t> date_;
    Budget &budget_;
};

} // namespace stasis::jinja
