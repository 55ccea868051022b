// Runs statements. Scopes are as in Jinja: a loop's body and a macro have their own, an if has
// none. Knows no chats.
#include "runtime/text/jinja/eval.h"

#include <algorithm>

#include "runtime/text/jinja/jinja.h"

namespace stasis::jinja {

Evaluator::Evaluator(const Dict &variables, std::optional<std::time_t> date, Budget &budget)
    : date_(date), budget_(budget) {
    scopes_.emplace_back();
    const std::pair<const char *, Builtin> builtins[] = {
        {"raise_exception", Builtin::raise_exception},
        {"strftime_now", Builtin::strftime_now},
        {"namespace", Builtin::namespace_},
        {"range", Builtin::range},
        {"dict", Builtin::dict}};
    for (const auto &[name, builtin] : builtins) {
        if (builtin != Builtin::strftime_now || date) {
            scopes_[0][name] = Value(Value::Data(builtin));
        }
    }
    for (const auto &[name, value] : variables) {
        scopes_[0][name] = value;
    }
}

Flow Evaluator::run(const std::vector<NodePtr> &body) {
    const Descent descent(*this);
    path_.push_back({&body, 0, depth_});
    Flow flow = Flow::next;
    for (size_t i = 0; i < body.size() && flow == Flow::next; ++i) {
        path_.back().next = i + 1;
        flow = statement(*body[i]);
    }
    path_.pop_back();
    return flow;
}

Value Evaluator::lookup(const std::string &name) const {
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

void Evaluator::unpack(const Node &node, const Value &value) {
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

Flow Evaluator::statement(const Node &node) {
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

Flow Evaluator::branch(const Node &node) {
    const Node *at = &node;
    while (!truthy(eval(*at->children[0]))) {
        if (at->other.size() != 1 || at->other[0]->kind != Kind::branch) {
            return run(at->other);
        }
        at = at->other[0].get(); // elif
    }
    return run(at->body);
}

std::string Evaluator::captured(const std::vector<NodePtr> &body) {
    std::string outer = std::move(out_);
    out_.clear();
    ++inside_;
    run(body);
    --inside_;
    std::swap(outer, out_);
    return outer;
}

void Evaluator::assign(const Node &node) {
    const Value value = eval(*node.children[0]);
    if (node.text.empty()) {
        unpack(node, value);
        return;
    }
    // Only a namespace can be changed from inside a loop.
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

Flow Evaluator::loop(const Node &node) {
    const Value iterated = eval(*node.children[0]);
    const OpenList *open = iterated.open_list();
    if (open != nullptr && beginnings_ != nullptr && inside_ == 0 && node.children[1] == nullptr) {
        return open_loop(node, *open);
    }
    List items = elements(iterated, budget_);
    // The filter of a loop chooses the items before the first round.
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
        if (round(node, items, i) == Flow::break_) {
            break;
        }
    }
    return Flow::next;
}

Flow Evaluator::round(const Node &node, std::span<const Value> items, size_t i) {
    budget_.spend(8 + 3 * cost(items[i])); // the item, and its copies in the neighbours
    scopes_.emplace_back();
    ++inside_;
    unpack(node, items[i]);
    set("loop", loop_variable(items, i));
    const Flow flow = run(node.body);
    --inside_;
    scopes_.pop_back();
    return flow;
}

Value Evaluator::loop_variable(std::span<const Value> items, size_t i) {
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

Template::Template(std::string_view source)
    : body_(parse(source)), asks_for_lengths_(asks_for_lengths(body_)) {}
Template::~Template() = default;

std::string Template::render(const Dict &variables, std::optional<std::time_t> date,
                             Budget &budget) const {
    Evaluator evaluator(variables, date, budget);
    evaluator.run(body_);
    return evaluator.take_output();
}

} // namespace stasis::jinja
