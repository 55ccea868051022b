// Renders the beginnings of a conversation together with it. All of them run as one, as long as
// they do the same: a rendering of the whole stands for each beginning of more messages than
// anything has looked at (OpenMessages::horizon). In the loop over the messages a beginning parts
// from it in the round of its last message, or before a round that looks further: a copy of the
// variables then renders the rest of it. Knows no chats.
#include <algorithm>

#include "runtime/text/jinja/eval.h"

namespace stasis::jinja {

namespace {

bool tells_place(const std::string &name) {
    return name == "index" || name == "index0" || name == "first" || name == "last" ||
           name == "previtem" || name == "nextitem";
}

bool asks_for_lengths(const Node &node) {
    const bool loop = node.kind == Kind::name && node.text == "loop";
    const bool place = node.kind == Kind::attribute && tells_place(node.text) &&
                       node.children[0]->kind == Kind::name;
    const auto asks = [](const NodePtr &child) {
        return child != nullptr && asks_for_lengths(*child);
    };
    return loop || (!place && std::any_of(node.children.begin(), node.children.end(), asks)) ||
           asks_for_lengths(node.body) || asks_for_lengths(node.other);
}

} // namespace

bool asks_for_lengths(const std::vector<NodePtr> &body) {
    return std::any_of(body.begin(), body.end(),
                       [](const NodePtr &node) { return asks_for_lengths(*node); });
}

void Template::render_beginnings(const Dict &variables, List messages,
                                 std::optional<std::time_t> date, Budget &budget,
                                 const TakeBeginning &take) const {
    if (asks_for_lengths_ || messages.empty()) {
        return;
    }
    const size_t count = messages.size();
    Beginnings beginnings{
        std::make_shared<OpenMessages>(OpenMessages{std::move(messages), count, 0}), 1, take};
    Dict all = variables;
    all.emplace_back("messages", OpenList::make(beginnings.messages, 0));
    Evaluator(all, date, budget).run_beginnings(body_, beginnings);
}

void Evaluator::run_beginnings(const std::vector<NodePtr> &body, Beginnings &beginnings) {
    beginnings_ = &beginnings;
    run(body);
    // A template that has left its loop early renders these alike.
    const OpenMessages &messages = *beginnings.messages;
    for (size_t count = std::max(beginnings.next, messages.horizon); count <= messages.count;
         ++count) {
        beginnings.take({count, out_, "", false});
    }
    if (messages.horizon > messages.count) {
        beginnings.take({messages.count, out_, "", false});
    }
}

// A copy that renders the rest of a beginning.
Evaluator::Evaluator(const Evaluator &whole, Scopes scopes, Budget &budget)
    : scopes_(std::move(scopes)), depth_(whole.depth_), path_(whole.path_), date_(whole.date_),
      budget_(budget) {}

// Namespaces can be changed, so each has a copy of its own; no other value holds one.
Evaluator::Scopes Evaluator::copied(const Scopes &scopes) {
    Scopes copies = scopes;
    std::map<const Namespace *, std::shared_ptr<Namespace>> made;
    for (Scope &scope : copies) {
        for (auto &[name, value] : scope) {
            if (const auto *held = std::get_if<std::shared_ptr<Namespace>>(&value.data)) {
                std::shared_ptr<Namespace> &copy = made[held->get()];
                copy = copy != nullptr ? copy : std::make_shared<Namespace>(**held);
                value.data = copy;
            }
        }
    }
    return copies;
}

Flow Evaluator::open_loop(const Node &node, const OpenList &list) {
    const std::span<const Value> items = list.items();
    budget_.spend(items.size());
    if (items.empty()) {
        return run(node.other);
    }
    OpenMessages &messages = *beginnings_->messages;
    size_t &next = beginnings_->next;
    // Until the whole is left, when the last message is the only one of its round.
    const auto branch = [&] { return Branch{copied(scopes_), out_.size(), budget_.left}; };
    next = std::max(next, messages.horizon);
    if (next <= list.from() && next < messages.count) {
        const Branch before = branch();
        for (; next <= list.from() && next < messages.count; ++next) {
            report(node, list, 0, next, before);
        }
    }
    for (size_t i = 0; i < items.size(); ++i) {
        if (next >= messages.count) {
            if (round(node, items, i) == Flow::break_) {
                break;
            }
            continue;
        }
        const Branch before = branch();
        const Flow flow = round(node, items, i);
        // This round is the last one of one beginning, and another one for those that are shorter
        // than what it has looked at.
        const size_t end =
            std::min(std::max(list.from() + i + 2, messages.horizon), messages.count);
        for (; next < end; ++next) {
            report(node, list, i, next, before);
        }
        if (flow == Flow::break_) {
            break;
        }
    }
    return Flow::next;
}

// Renders the rest of a beginning from round `i` on, and reports it.
void Evaluator::report(const Node &node, const OpenList &list, size_t i, size_t count,
                       const Branch &before) {
    struct Shortened {
        OpenMessages &messages;
        size_t count, horizon;
        ~Shortened() {
            messages.count = count;
            messages.horizon = horizon;
        }
    };
    OpenMessages &messages = *beginnings_->messages;
    Beginning beginning{count, std::string_view(out_).substr(0, before.written), "", false};
    Budget budget{before.budget, false};
    try {
        const Shortened shortened{messages, messages.count, messages.horizon};
        messages.count = count;
        Evaluator rest(*this, copied(before.scopes), budget);
        rest.finish(node, list, i);
        beginning.rest = rest.take_output();
    } catch (const Refusal &) {
        beginning.refused = true;
    } catch (const Error &error) {
        if (error.status() == Status::no_memory) {
            throw;
        }
        beginning.refused = true;
    }
    // All together have looked at more than this one would, so its own budget may suffice.
    if (!budget.exhausted) {
        beginnings_->take(beginning);
    }
}

void Evaluator::finish(const Node &node, const OpenList &list, size_t i) {
    const std::span<const Value> items = list.items();
    Flow flow = items.empty() ? run(node.other) : Flow::next;
    while (i < items.size() && round(node, items, i) != Flow::break_) {
        ++i;
    }
    while (!path_.empty() && flow == Flow::next) {
        const Place place = path_.back();
        path_.pop_back();
        depth_ = place.depth;
        for (size_t at = place.next; at < place.body->size() && flow == Flow::next; ++at) {
            flow = statement(*(*place.body)[at]);
        }
    }
}

// Returns the open list whose length a comparison asks for and compares with a number: "messages |
// length > 0". Null for every other operation.
OpenList *Evaluator::compared_length(const Node &node) const {
    const Node &left = *node.children[0], &right = *node.children[1];
    if (left.kind != Kind::filter || (left.text != "length" && left.text != "count") ||
        !left.names.empty() || left.children[0]->kind != Kind::name) {
        return nullptr;
    }
    const std::string &op = node.text;
    const bool compares =
        op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
    const bool number =
        right.kind == Kind::literal && right.value.is<int64_t>() && right.value.as<int64_t>() >= 0;
    return compares && number ? lookup(left.children[0]->text).open_list() : nullptr;
}

} // namespace stasis::jinja
