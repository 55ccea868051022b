// Runs a syntax tree. Scopes as in Jinja: a loop's body and a macro have their own, an if has none.
#include <algorithm>
#include <map>

#include "format/error.h"
#include "runtime/jinja.h"
#include "runtime/jinja_builtins.h"
#include "runtime/jinja_syntax.h"

namespace stasis::jinja {

namespace {

constexpr int kDepthMax = 200; // nodes being evaluated inside one another, macro calls included

enum class Flow { next, break_, continue_ };

class Evaluator {
  public:
    Evaluator(const Dict &variables, std::time_t now, Budget &budget) : now_(now), budget_(budget) {
        scopes_.emplace_back();
        const std::pair<const char *, Builtin> builtins[] = {
            {"raise_exception", Builtin::raise_exception},
            {"strftime_now", Builtin::strftime_now},
            {"namespace", Builtin::namespace_},
            {"range", Builtin::range},
            {"dict", Builtin::dict}};
        for (const auto &[name, builtin] : builtins) {
            scopes_[0][name] = Value(Value::Data(builtin));
        }
        for (const auto &[name, value] : variables) {
            scopes_[0][name] = value;
        }
    }

    Flow run(const std::vector<NodePtr> &body) {
        const Descent descent(*this);
        for (const NodePtr &node : body) {
            const Flow flow = statement(*node);
            if (flow != Flow::next) {
                return flow;
            }
        }
        return Flow::next;
    }

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

    // ---- variables

    Value lookup(const std::string &name) const {
        for (size_t i = scopes_.size(); i-- > 0;) {
            if (i != 0 && i < base_) {
                continue; // a macro sees its own scopes and the global one
            }
            const auto found = scopes_[i].find(name);
            if (found != scopes_[i].end()) {
                return found->second;
            }
        }
        return {};
    }
    void set(const std::string &name, Value value) { scopes_.back()[name] = std::move(value); }

    void unpack(const Node &node, const Value &value) {
        if (node.names.size() == 1) {
            set(node.names[0], value);
            return;
        }
        const List items = elements(value, budget_);
        if (items.size() != node.names.size()) {
            bad(node, "cannot be unpacked into that many names:", value);
        }
        for (size_t i = 0; i < items.size(); ++i) {
            set(node.names[i], items[i]);
        }
    }

    // ---- statements

    Flow statement(const Node &node) {
        budget_.spend(1);
        switch (node.kind) {
        case Kind::text:
            budget_.spend(node.text.size());
            out_ += node.text;
            return Flow::next;
        case Kind::output:
            append_text(eval(*node.children[0]), out_, budget_);
            return Flow::next;
        case Kind::branch:
            return branch(node);
        case Kind::loop:
            return loop(node);
        case Kind::assign:
            assign(node);
            return Flow::next;
        case Kind::capture:
            set(node.names[0], Value(captured(node.body)));
            return Flow::next;
        case Kind::macro:
            set(node.text, Value(Value::Data(Macro{&node})));
            return Flow::next;
        case Kind::group:
            return run(node.body);
        case Kind::break_:
            return Flow::break_;
        case Kind::continue_:
            return Flow::continue_;
        default:
            return Flow::next;
        }
    }

    Flow branch(const Node &node) {
        const Node *at = &node;
        while (!truthy(eval(*at->children[0]))) {
            if (at->other.size() != 1 || at->other[0]->kind != Kind::branch) {
                return run(at->other);
            }
            at = at->other[0].get(); // elif
        }
        return run(at->body);
    }

    std::string captured(const std::vector<NodePtr> &body) {
        std::string outer = std::move(out_);
        out_.clear();
        run(body);
        std::swap(outer, out_);
        return outer;
    }

    void assign(const Node &node) {
        const Value value = eval(*node.children[0]);
        if (node.text.empty()) {
            unpack(node, value);
            return;
        }
        const Value target = lookup(node.names[0]);
        if (!target.is<std::shared_ptr<Namespace>>()) {
            bad(node, "an attribute can be set on a namespace only, not on", target);
        }
        check_storable(value);
        Dict &items = target.as<std::shared_ptr<Namespace>>()->items;
        const auto found = std::find_if(items.begin(), items.end(),
                                        [&](const auto &item) { return item.first == node.text; });
        if (found != items.end()) {
            found->second = value;
        } else {
            items.emplace_back(node.text, value);
        }
    }

    Flow loop(const Node &node) {
        List items = elements(eval(*node.children[0]), budget_);
        if (node.children[1] != nullptr) {
            List kept;
            scopes_.emplace_back();
            for (const Value &item : items) {
                unpack(node, item);
                if (truthy(eval(*node.children[1]))) {
                    kept.push_back(item);
                }
            }
            scopes_.pop_back();
            items = std::move(kept);
        }
        if (items.empty()) {
            return run(node.other);
        }
        for (size_t i = 0; i < items.size(); ++i) {
            budget_.spend(8 + 3 * cost(items[i])); // the item, and its neighbours' copies of it
            scopes_.emplace_back();
            unpack(node, items[i]);
            set("loop", loop_variable(items, i));
            const Flow flow = run(node.body);
            scopes_.pop_back();
            if (flow == Flow::break_) {
                break;
            }
        }
        return Flow::next;
    }

    static Value loop_variable(const List &items, size_t i) {
        const auto number = [](size_t n) { return Value(Value::Data(static_cast<int64_t>(n))); };
        const auto flag = [](bool b) { return Value(Value::Data(b)); };
        Dict loop = {{"index", number(i + 1)},
                     {"index0", number(i)},
                     {"revindex", number(items.size() - i)},
                     {"revindex0", number(items.size() - i - 1)},
                     {"first", flag(i == 0)},
                     {"last", flag(i + 1 == items.size())},
                     {"length", number(items.size())}};
        if (i > 0) {
            loop.emplace_back("previtem", items[i - 1]);
        }
        if (i + 1 < items.size()) {
            loop.emplace_back("nextitem", items[i + 1]);
        }
        return make_dict(std::move(loop));
    }

    // ---- expressions

    Value eval(const Node &node) {
        const Descent descent(*this);
        Value value = compute(node);
        budget_.spend(cost(value));
        return value;
    }

    Value eval_or_undefined(const NodePtr &node) { return node != nullptr ? eval(*node) : Value(); }

    Value compute(const Node &node) {
        switch (node.kind) {
        case Kind::literal:
            return node.value;
        case Kind::name:
            return lookup(node.text);
        case Kind::list: {
            List items;
            for (const NodePtr &child : node.children) {
                items.push_back(eval(*child));
            }
            return make_list(std::move(items));
        }
        case Kind::dict:
            return dict(node);
        case Kind::attribute:
            return get_attribute(eval(*node.children[0]), node.text);
        case Kind::item: {
            const Value object = eval(*node.children[0]);
            return get_item(object, eval(*node.children[1]), budget_);
        }
        case Kind::slice: {
            const Value object = eval(*node.children[0]);
            const Value begin = eval_or_undefined(node.children[1]);
            const Value end = eval_or_undefined(node.children[2]);
            return get_slice(object, begin, end, eval_or_undefined(node.children[3]), budget_);
        }
        case Kind::call:
            return call(node);
        case Kind::filter: {
            const Value subject = eval(*node.children[0]);
            return apply_filter(node.text, subject, arguments(node), budget_);
        }
        case Kind::test: {
            const Value subject = eval(*node.children[0]);
            return {Value::Data(apply_test(node.text, subject, arguments(node), budget_))};
        }
        case Kind::unary:
            return unary(node);
        case Kind::binary:
            return binary(node);
        case Kind::choice:
            return truthy(eval(*node.children[1])) ? eval(*node.children[0])
                                                   : eval_or_undefined(node.children[2]);
        default:
            return {};
        }
    }

    Value dict(const Node &node) {
        Dict items;
        for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
            const Value key = eval(*node.children[i]);
            if (key.text() == nullptr) {
                bad(node, "a dict's key must be a string, not", key);
            }
            std::erase_if(items, [&](const auto &item) { return item.first == *key.text(); });
            items.emplace_back(*key.text(), eval(*node.children[i + 1]));
        }
        return make_dict(std::move(items));
    }

    Arguments arguments(const Node &node) {
        Arguments out;
        for (size_t i = 0; i < node.names.size(); ++i) {
            Value value = eval(*node.children[i + 1]);
            if (node.names[i].empty()) {
                out.positional.push_back(std::move(value));
            } else {
                out.keyword.emplace_back(node.names[i], std::move(value));
            }
        }
        return out;
    }

    Value call(const Node &node) {
        const Node &callee = *node.children[0];
        if (callee.kind == Kind::attribute) {
            const Value object = eval(*callee.children[0]);
            return call_method(object, callee.text, arguments(node), budget_);
        }
        const Value function = eval(callee);
        if (function.is<Builtin>()) {
            return call_builtin(function.as<Builtin>(), arguments(node), now_, budget_);
        }
        if (!function.is<Macro>()) {
            bad(node, "what is called is", function);
        }
        return call_macro(*function.as<Macro>().node, arguments(node));
    }

    Value call_macro(const Node &macro, const Arguments &given) {
        const size_t outer_base = base_;
        base_ = scopes_.size();
        scopes_.emplace_back();
        for (size_t i = 0; i < macro.names.size(); ++i) {
            const Value *value = given.find(i, macro.names[i]);
            set(macro.names[i], value != nullptr ? *value : eval_or_undefined(macro.children[i]));
        }
        std::string text = captured(macro.body);
        scopes_.pop_back();
        base_ = outer_base;
        return {std::move(text)};
    }

    Value unary(const Node &node) {
        const Value value = eval(*node.children[0]);
        if (node.text == "not") {
            return {Value::Data(!truthy(value))};
        }
        if (value.is<double>()) {
            return {Value::Data(node.text == "-" ? -value.as<double>() : value.as<double>())};
        }
        const int64_t number = value.integer("the operand of a sign");
        return arithmetic(node, node.text, 0, number);
    }

    Value binary(const Node &node) {
        const std::string &op = node.text;
        const Value left = eval(*node.children[0]);
        if (op == "and" || op == "or") {
            return truthy(left) == (op == "or") ? left : eval(*node.children[1]);
        }
        const Value right = eval(*node.children[1]);
        if (op == "==" || op == "!=") {
            return {Value::Data(equal(left, right, budget_) == (op == "=="))};
        }
        if (op == "in" || op == "not in") {
            return {Value::Data(contains(right, left, budget_) == (op == "in"))};
        }
        if (op == "~") {
            std::string text = to_text(left, budget_);
            append_text(right, text, budget_);
            return {std::move(text)};
        }
        if (op[0] == '<' || op[0] == '>') {
            return {Value::Data(ordered(node, left, right))};
        }
        if (op == "+" && left.text() != nullptr && right.text() != nullptr) {
            return {*left.text() + *right.text()};
        }
        if (op == "+" && left.list() != nullptr && right.list() != nullptr) {
            List items = elements(left, budget_);
            const List more = elements(right, budget_);
            items.insert(items.end(), more.begin(), more.end());
            return make_list(std::move(items));
        }
        if (op == "*" && left.text() != nullptr && right.is<int64_t>()) {
            return repeated(*left.text(), right.as<int64_t>());
        }
        if (left.is<double>() || right.is<double>() || op == "/") {
            return real_arithmetic(node, left, right);
        }
        if (!left.is_number()) {
            bad(node, "cannot calculate with", left);
        }
        if (!right.is_number()) {
            bad(node, "cannot calculate with", right);
        }
        return arithmetic(node, op, left.integer(""), right.integer(""));
    }

    Value repeated(const std::string &text, int64_t count) {
        std::string out;
        for (int64_t i = 0; i < count; ++i) {
            budget_.spend(text.size() + 1);
            out += text;
        }
        return {std::move(out)};
    }

    bool ordered(const Node &node, const Value &left, const Value &right) {
        int sign = 0;
        if (left.is_number() && right.is_number()) {
            sign = left.number() < right.number() ? -1 : left.number() > right.number() ? 1 : 0;
        } else if (left.text() != nullptr && right.text() != nullptr) {
            sign = left.text()->compare(*right.text());
        } else {
            bad(node, "cannot be compared with the other operand:", left);
        }
        const std::string &op = node.text;
        return op == "<" ? sign < 0 : op == "<=" ? sign <= 0 : op == ">" ? sign > 0 : sign >= 0;
    }

    static Value real_arithmetic(const Node &node, const Value &left, const Value &right) {
        if (!left.is_number() || !right.is_number()) {
            bad(node, "cannot calculate with", left.is_number() ? right : left);
        }
        const double a = left.number(), b = right.number();
        if (node.text == "+" || node.text == "-" || node.text == "*") {
            return {Value::Data(node.text == "+" ? a + b : node.text == "-" ? a - b : a * b)};
        }
        if (node.text != "/" || b == 0.0) {
            bad(node, "division by zero or of floats by", right);
        }
        return {Value::Data(a / b)};
    }

    static Value arithmetic(const Node &node, const std::string &op, int64_t a, int64_t b) {
        int64_t result = 0;
        bool failed = false;
        if (op == "+") {
            failed = __builtin_add_overflow(a, b, &result);
        } else if (op == "-") {
            failed = __builtin_sub_overflow(a, b, &result);
        } else if (op == "*") {
            failed = __builtin_mul_overflow(a, b, &result);
        } else { // "//" and "%" round towards minus infinity
            failed = b == 0 || (a == INT64_MIN && b == -1);
            if (!failed) {
                const int64_t remainder = a % b;
                const bool lower = remainder != 0 && (remainder < 0) != (b < 0);
                result = op == "%" ? remainder + (lower ? b : 0) : a / b - (lower ? 1 : 0);
            }
        }
        if (failed) {
            fail(Status::unsupported, "chat template, line %zu: '%s' of %lld and %lld", node.line,
                 op.c_str(), static_cast<long long>(a), static_cast<long long>(b));
        }
        return {Value::Data(result)};
    }

    std::vector<Scope> scopes_;
    size_t base_ = 0; // first scope of the macro being run
    int depth_ = 0;
    std::string out_;
    std::time_t now_;
    Budget &budget_;
};

} // namespace

Template::Template(std::string_view source) : body_(parse(source)) {}
Template::~Template() = default;

std::string Template::render(const Dict &variables, std::time_t now, Budget &budget) const {
    Evaluator evaluator(variables, now, budget);
    evaluator.run(body_);
    return evaluator.take_output();
}

} // namespace stasis::jinja
