// Containers, truth and equality of values, by Python's rules.
#include "runtime/text/jinja/value.h"

#include <algorithm>

#include "format/state/error.h"
#include "runtime/text/jinja/open_list.h"

namespace stasis::jinja {

namespace {

constexpr int kDepthMax = 32; // nested containers

int depth(const Value &value) {
    if (const ListValue *list = value.list()) {
        return list->depth;
    }
    const DictValue *dict = value.dict();
    return dict != nullptr ? dict->depth : 0;
}

int checked_depth(int inner) {
    if (inner >= kDepthMax) {
        fail(Status::unsupported, "chat template: lists lie more than %d deep in one another",
             kDepthMax);
    }
    return inner + 1;
}

} // namespace

void Budget::spend(size_t units) {
    if (units > left) {
        exhausted = true;
        fail(Status::unsupported, "chat template: takes too many steps or too much memory");
    }
    left -= units;
}

const Value *DictValue::find(std::string_view key) const {
    for (const auto &[name, value] : items) {
        if (name == key) {
            return &value;
        }
    }
    return nullptr;
}

const ListValue *Value::list() const {
    const auto *list = std::get_if<std::shared_ptr<const ListValue>>(&data);
    if (list == nullptr) {
        return nullptr;
    }
    return (*list)->open != nullptr ? (*list)->open->closed() : list->get();
}

OpenList *Value::open_list() const {
    const auto *list = std::get_if<std::shared_ptr<const ListValue>>(&data);
    return list != nullptr ? (*list)->open.get() : nullptr;
}

const DictValue *Value::dict() const {
    const auto *dict = std::get_if<std::shared_ptr<const DictValue>>(&data);
    return dict != nullptr ? dict->get() : nullptr;
}

int64_t Value::integer(const char *what) const {
    if (is<bool>()) {
        return as<bool>() ? 1 : 0;
    }
    if (!is<int64_t>()) {
        fail(Status::unsupported, "chat template: %s must be an integer, not %s", what,
             type_name(*this));
    }
    return as<int64_t>();
}

double Value::number() const {
    return is<double>()    ? as<double>()
           : is<int64_t>() ? static_cast<double>(as<int64_t>())
                           : static_cast<double>(as<bool>());
}

void check_storable(const Value &value) {
    if (value.is<std::shared_ptr<Namespace>>()) {
        fail(Status::unsupported, "chat template: a namespace cannot be stored in another value");
    }
}

Value make_list(List items) {
    int inner = 0;
    for (const Value &item : items) {
        check_storable(item);
        inner = std::max(inner, depth(item));
    }
    return {std::make_shared<const ListValue>(ListValue{std::move(items), checked_depth(inner)})};
}

Value make_dict(Dict items) {
    int inner = 0;
    for (const auto &[key, item] : items) {
        check_storable(item);
        inner = std::max(inner, depth(item));
    }
    return {std::make_shared<const DictValue>(DictValue{std::move(items), checked_depth(inner)})};
}

size_t cost(const Value &value) {
    const std::string *text = value.text();
    return 1 + (text != nullptr ? text->size() : 0);
}

bool truthy(const Value &value) {
    if (value.is<Undefined>() || value.is<None>()) {
        return false;
    }
    if (value.is_number()) {
        return value.number() != 0.0;
    }
    if (OpenList *open = value.open_list()) {
        open->seen(std::min<size_t>(open->size(), 1));
        return open->size() != 0;
    }
    return value.text() == nullptr && value.list() == nullptr && value.dict() == nullptr
               ? true
               : length(value) != 0;
}

bool equal(const Value &a, const Value &b, Budget &budget) {
    budget.spend(1);
    // Numbers compare by value, other types only with their own type.
    if (a.is_number() && b.is_number()) {
        return a.is<double>() || b.is<double>() ? a.number() == b.number()
                                                : a.integer("") == b.integer("");
    }
    if (a.data.index() != b.data.index()) {
        return false;
    }
    if (const std::string *text = a.text()) {
        budget.spend(text->size());
        return *text == *b.text();
    }
    if (const ListValue *list = a.list()) {
        const List &x = list->items, &y = b.list()->items;
        return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                          [&](const Value &p, const Value &q) { return equal(p, q, budget); });
    }
    if (const DictValue *dict = a.dict()) {
        return dict->items.size() == b.dict()->items.size() &&
               std::all_of(dict->items.begin(), dict->items.end(), [&](const auto &item) {
                   budget.spend(dict->items.size());
                   const Value *other = b.dict()->find(item.first);
                   return other != nullptr && equal(item.second, *other, budget);
               });
    }
    return a.is<Undefined>() || a.is<None>();
}

bool contains(const Value &container, const Value &item, Budget &budget) {
    if (const std::string *text = container.text()) {
        if (item.text() == nullptr) {
            fail(Status::unsupported, "chat template: 'in' looks for %s in a string",
                 type_name(item));
        }
        budget.spend(text->size());
        return text->find(*item.text()) != std::string::npos;
    }
    if (const DictValue *dict = container.dict()) {
        budget.spend(dict->items.size());
        return item.text() != nullptr && dict->find(*item.text()) != nullptr;
    }
    const List items = elements(container, budget);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value &other) { return equal(item, other, budget); });
}

List elements(const Value &value, Budget &budget) {
    List items;
    if (value.is<Undefined>()) {
        return items;
    }
    // Each element is charged before it is copied.
    if (const ListValue *list = value.list()) {
        for (const Value &item : list->items) {
            budget.spend(cost(item));
        }
        items = list->items;
    } else if (const DictValue *dict = value.dict()) {
        budget.spend(dict->items.size());
        for (const auto &[key, item] : dict->items) {
            items.emplace_back(key);
        }
    } else if (const std::string *text = value.text()) {
        budget.spend(text->size());
        for (const std::string_view character : characters(*text)) {
            items.emplace_back(std::string(character));
        }
    } else {
        fail(Status::unsupported, "chat template: %s has no elements", type_name(value));
    }
    return items;
}

size_t length(const Value &value) {
    if (value.is<Undefined>()) {
        return 0;
    }
    if (const ListValue *list = value.list()) {
        return list->items.size();
    }
    if (const DictValue *dict = value.dict()) {
        return dict->items.size();
    }
    if (const std::string *text = value.text()) {
        return characters(*text).size();
    }
    fail(Status::unsupported, "chat template: %s has no length", type_name(value));
}

const char *type_name(const Value &value) {
    static constexpr const char *kNames[] = {"something undefined",
                                             "none",
                                             "a boolean",
                                             "an integer",
                                             "a float",
                                             "a string",
                                             "a list",
                                             "a dict",
                                             "a namespace",
                                             "a function",
                                             "a macro"};
    return kNames[value.data.index()];
}

} // namespace stasis::jinja
