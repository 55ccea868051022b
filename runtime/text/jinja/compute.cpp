// Evaluates expressions by Python's rules for their operators. Knows no statements.
#include "runtime/text/jinja/eval.h"

namespace stasis::jinja {

Value Evaluator::eval(const Node &node) {
    const Descent descent(*this);
    Value value = compute(node);
    budget_.spend(cost(value));
    return value;
}

Value Evaluator::eval_or_undefined(const NodePtr &node) {
    return node != nullptr ? eval(*node) : Value();
}

Value Evaluator::compute(const Node &node) {
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

Value Evaluator::dict(const Node &node) {
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

// Evaluates the arguments of a call, filter or test; an empty name means positional.
Arguments Evaluator::arguments(const Node &node) {
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

Value Evaluator::call(const Node &node) {
    const Node &callee = *node.children[0];
    // A method has no value of its own, so it is called on its object directly.
    if (callee.kind == Kind::attribute) {
        const Value object = eval(*callee.children[0]);
        return call_method(object, callee.text, arguments(node), budget_);
    }
    const Value function = eval(callee);
    if (function.is<Builtin>()) {
        return call_builtin(function.as<Builtin>(), arguments(node), date_.value_or(0), budget_);
    }
    if (callee.kind == Kind::name && callee.text == "strftime_now") {
        fail(Status::unsupported, "chat template, line %zu: it prints the date, and none is given",
             node.line);
    }
    if (!function.is<Macro>()) {
        bad(node, "what is called is", function);
    }
    return call_macro(*function.as<Macro>().node, arguments(node));
}

// A macro sees its own scopes and the global one, so lookups begin at its own.
Value Evaluator::call_macro(const Node &macro, const Arguments &given) {
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

Value Evaluator::unary(const Node &node) {
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

Value Evaluator::binary(const Node &node) {
    const std::string &op = node.text;
    OpenList *const measured = compared_length(node);
    const size_t horizon = measured != nullptr ? measured->horizon() : 0;
    const Value left = eval(*node.children[0]);
    // These evaluate the right operand only if it is needed.
    if (op == "and" || op == "or") {
        return truthy(left) == (op == "or") ? left : eval(*node.children[1]);
    }
    const Value right = eval(*node.children[1]);
    if (measured != nullptr) {
        measured->compared(static_cast<size_t>(right.as<int64_t>()), horizon);
    }
    // Operators on any values, then on texts and lists.
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
    // Numbers: a float makes the result a float, as division does.
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

Value Evaluator::repeated(const std::string &text, int64_t count) {
    std::string out;
    // Each copy is charged before it is made.
    for (int64_t i = 0; i < count; ++i) {
        budget_.spend(text.size() + 1);
        out += text;
    }
    return {std::move(out)};
}

bool Evaluator::ordered(const Node &node, const Value &left, const Value &right) {
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

Value Evaluator::real_arithmetic(const Node &node, const Value &left, const Value &right) {
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

Value Evaluator::arithmetic(const Node &node, const std::string &op, int64_t a, int64_t b) {
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

} // namespace stasis::jinja
