// Filters and tests, as in the Jinja manual ("List of Builtin Filters", "List of Builtin Tests");
// tojson as transformers defines it.
#include <algorithm>

#include "format/state/error.h"
#include "runtime/text/jinja/builtins.h"

namespace stasis::jinja {

namespace {

std::string text_argument(const Arguments &arguments, size_t index, std::string_view name,
                          const char *otherwise, Budget &budget) {
    const Value *value = arguments.find(index, name);
    return value != nullptr ? to_text(*value, budget) : std::string(otherwise);
}

Value join(const Value &subject, const Arguments &arguments, Budget &budget) {
    const std::string separator = text_argument(arguments, 0, "d", "", budget);
    const Value *attribute = arguments.find(1, "attribute");
    std::string out;
    bool first = true;
    for (const Value &item : elements(subject, budget)) {
        budget.spend(separator.size());
        out += first ? "" : separator;
        first = false;
        append_text(attribute != nullptr ? get_item(item, *attribute, budget) : item, out, budget);
    }
    return {std::move(out)};
}

// select, reject: returns the items that pass a test; selectattr, rejectattr: the items whose
// attribute does.
Value choose(const Value &subject, const Arguments &arguments, bool keep, bool by_attribute,
             Budget &budget) {
    Arguments rest = arguments;
    Value attribute;
    if (by_attribute) {
        if (rest.positional.empty()) {
            fail(Status::unsupported, "chat template: selectattr and rejectattr need an attribute");
        }
        attribute = rest.positional.front();
        rest.positional.erase(rest.positional.begin());
    }
    std::string test;
    if (!rest.positional.empty()) {
        test = to_text(rest.positional.front(), budget);
        rest.positional.erase(rest.positional.begin());
    }
    List out;
    for (const Value &item : elements(subject, budget)) {
        const Value tested = by_attribute ? get_item(item, attribute, budget) : item;
        const bool passed = test.empty() ? truthy(tested) : apply_test(test, tested, rest, budget);
        if (passed == keep) {
            out.push_back(item);
        }
    }
    return make_list(std::move(out));
}

Value map(const Value &subject, const Arguments &arguments, Budget &budget) {
    const Value *attribute = arguments.find(SIZE_MAX, "attribute");
    Arguments rest = arguments;
    std::string filter;
    if (attribute == nullptr) {
        if (rest.positional.empty()) {
            fail(Status::unsupported, "chat template: map needs a filter or an attribute");
        }
        filter = to_text(rest.positional.front(), budget);
        rest.positional.erase(rest.positional.begin());
    }
    List out;
    for (const Value &item : elements(subject, budget)) {
        out.push_back(attribute != nullptr ? get_item(item, *attribute, budget)
                                           : apply_filter(filter, item, rest, budget));
    }
    return make_list(std::move(out));
}

Value items_of(const Value &subject, Budget &budget) {
    if (subject.is<Undefined>()) {
        return make_list({});
    }
    return call_method(subject, "items", {}, budget);
}

// Text that is no number gives 0, as in Python's default.
Value to_integer(const Value &subject) {
    if (subject.is_number()) {
        const double number = subject.number();
        if (number > -9e18 && number < 9e18) {
            return {Value::Data(static_cast<int64_t>(number))};
        }
    }
    int64_t value = 0;
    if (const std::string *text = subject.text()) {
        for (const char c : *text) {
            if (c < '0' || c > '9' || value > 100000000) {
                return {Value::Data(int64_t{0})};
            }
            value = value * 10 + (c - '0');
        }
    }
    return {Value::Data(value)};
}

bool flag(const Arguments &arguments, size_t index, std::string_view name) {
    const Value *value = arguments.find(index, name);
    return value != nullptr && truthy(*value);
}

// The arguments are those of transformers: ensure_ascii, indent, separators, sort_keys.
Value tojson(const Value &subject, const Arguments &arguments, Budget &budget) {
    JsonStyle style;
    style.ascii = flag(arguments, 0, "ensure_ascii");
    style.sorted = flag(arguments, 3, "sort_keys");
    const Value *indent = arguments.find(1, "indent");
    if (indent != nullptr && !indent->is<None>()) {
        const int64_t width = indent->integer("the indent of tojson");
        if (width > 16) {
            fail(Status::unsupported, "chat template: tojson indents by more than 16");
        }
        style.indent = static_cast<int>(std::max<int64_t>(width, 0));
        style.between = ",";
    }
    const Value *separators = arguments.find(2, "separators");
    if (separators != nullptr && !separators->is<None>()) {
        const List pair = elements(*separators, budget);
        if (pair.size() != 2 || pair[0].text() == nullptr || pair[1].text() == nullptr) {
            fail(Status::unsupported, "chat template: the separators of tojson are two strings");
        }
        style.between = *pair[0].text();
        style.after_key = *pair[1].text();
    }
    return {to_json(subject, style, budget)};
}

// Compares as Python does: numbers with numbers, texts with texts, by code points; texts without
// regard to the case of ASCII letters unless `exact`.
bool before(const Value &a, const Value &b, bool exact, Budget &budget) {
    budget.spend(1);
    if (a.is_number() && b.is_number()) {
        return a.number() < b.number();
    }
    if (a.text() == nullptr || b.text() == nullptr) {
        fail(Status::unsupported, "chat template: %s and %s cannot be sorted", type_name(a),
             type_name(b));
    }
    budget.spend(std::min(a.text()->size(), b.text()->size()));
    const auto lower = [&](char c) {
        return static_cast<unsigned char>(!exact && c >= 'A' && c <= 'Z' ? c + 32 : c);
    };
    return std::lexicographical_compare(a.text()->begin(), a.text()->end(), b.text()->begin(),
                                        b.text()->end(),
                                        [&](char x, char y) { return lower(x) < lower(y); });
}

// sort, min and max: by an attribute if one is named. dictsort: the items of a dict, by key
// or value.
Value sorted(std::string_view name, const Value &subject, const Arguments &arguments,
             Budget &budget) {
    const bool dict = name == "dictsort", sort = name == "sort";
    const bool exact = flag(arguments, sort ? 1 : 0, "case_sensitive");
    const bool reverse = flag(arguments, sort ? 0 : 2, "reverse");
    const Value *attribute = arguments.find(sort ? 2 : 1, "attribute");
    const Value *by = dict ? arguments.find(1, "by") : nullptr;
    const int64_t place = by != nullptr && equal(*by, Value("value"), budget) ? 1 : 0;
    const auto key = [&](const Value &item) {
        return dict                   ? get_item(item, Value(Value::Data(place)), budget)
               : attribute != nullptr ? get_item(item, *attribute, budget)
                                      : item;
    };
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value &item : elements(dict ? items_of(subject, budget) : subject, budget)) {
        keyed.emplace_back(key(item), item);
    }
    const auto less = [&](const auto &a, const auto &b) {
        return before(a.first, b.first, exact, budget);
    };
    List out;
    if (name == "min" || name == "max") {
        const auto chosen = name == "min" ? std::min_element(keyed.begin(), keyed.end(), less)
                                          : std::max_element(keyed.begin(), keyed.end(), less);
        return chosen == keyed.end() ? Value() : chosen->second;
    }
    if (reverse) {
        std::stable_sort(keyed.begin(), keyed.end(),
                         [&](const auto &a, const auto &b) { return less(b, a); });
    } else {
        std::stable_sort(keyed.begin(), keyed.end(), less);
    }
    for (auto &item : keyed) {
        out.push_back(std::move(item.second));
    }
    return make_list(std::move(out));
}

// Puts blanks before each line but the first; before an empty line only if `blank`.
Value indent(const Value &subject, const Arguments &arguments, Budget &budget) {
    const std::string text = to_text(subject, budget);
    const Value *width = arguments.find(0, "width");
    const std::string *given = width != nullptr ? width->text() : nullptr;
    const int64_t count = width == nullptr || given != nullptr ? 4 : width->integer("a width");
    if (count < 0 || count > 64) {
        fail(Status::unsupported, "chat template: indent by less than 0 or more than 64");
    }
    const std::string blanks = given != nullptr ? *given : std::string(size_t(count), ' ');
    const bool first = flag(arguments, 1, "first"), blank = flag(arguments, 2, "blank");
    std::string out;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        const bool indented = begin == 0 ? first : end > begin || blank;
        budget.spend(blanks.size());
        out += indented ? blanks : "";
        out.append(text, begin, end + 1 - begin);
        begin = end + 1;
    }
    return {std::move(out)};
}

Value first_or_last(const Value &subject, bool first, Budget &budget) {
    const List items = elements(subject, budget);
    return items.empty() ? Value() : first ? items.front() : items.back();
}

} // namespace

Value apply_filter(std::string_view name, const Value &subject, const Arguments &arguments,
                   Budget &budget) {
    // Filters of any value.
    if (name == "trim") {
        const Value *set = arguments.find(0, "chars");
        return {std::string(
            strip(to_text(subject, budget), true, true, set != nullptr ? set->text() : nullptr))};
    }
    if (name == "length" || name == "count") {
        return {Value::Data(static_cast<int64_t>(length(subject)))};
    }
    if (name == "tojson") {
        return tojson(subject, arguments, budget);
    }
    if (name == "default" || name == "d") {
        const Value *otherwise = arguments.find(0, "default_value");
        const Value *falsy = arguments.find(1, "boolean");
        const bool replace =
            subject.is<Undefined>() || (falsy != nullptr && truthy(*falsy) && !truthy(subject));
        return !replace ? subject : otherwise != nullptr ? *otherwise : Value("");
    }
    if (name == "join") {
        return join(subject, arguments, budget);
    }

    // Conversions to text and lists, and methods of strings.
    if (name == "string" || name == "safe") {
        return {to_text(subject, budget)};
    }
    if (name == "list") {
        return make_list(elements(subject, budget));
    }
    if (name == "first" || name == "last") {
        return first_or_last(subject, name == "first", budget);
    }
    if (name == "upper" || name == "lower" || name == "title" || name == "capitalize" ||
        name == "replace") {
        return call_method(Value(to_text(subject, budget)), name, arguments, budget);
    }
    if (name == "items") {
        return items_of(subject, budget);
    }

    // Filters of lists, and of numbers.
    if (name == "reverse") {
        List items = elements(subject, budget);
        std::reverse(items.begin(), items.end());
        return make_list(std::move(items));
    }
    if (name == "dictsort" || name == "sort" || name == "min" || name == "max") {
        return sorted(name, subject, arguments, budget);
    }
    if (name == "indent") {
        return indent(subject, arguments, budget);
    }
    if (name == "int") {
        return to_integer(subject);
    }
    if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
        return choose(subject, arguments, name.starts_with("select"), name.ends_with("attr"),
                      budget);
    }
    if (name == "map") {
        return map(subject, arguments, budget);
    }
    fail(Status::unsupported, "chat template: the filter '%.40s' is not supported",
         std::string(name).c_str());
}

bool apply_test(std::string_view name, const Value &subject, const Arguments &arguments,
                Budget &budget) {
    const auto argument = [&]() -> const Value & {
        const Value *value = arguments.find(0, "");
        if (value == nullptr) {
            fail(Status::unsupported, "chat template: the test '%.40s' needs an argument",
                 std::string(name).c_str());
        }
        return *value;
    };
    const auto remainder = [&](int64_t divisor) {
        if (divisor <= 0) {
            fail(Status::unsupported, "chat template: a test divides by %lld",
                 static_cast<long long>(divisor));
        }
        return subject.integer("what a test divides") % divisor;
    };
    // Types.
    const bool sequence = subject.text() != nullptr || subject.list() != nullptr ||
                          subject.dict() != nullptr || subject.is<Undefined>();
    if (name == "defined" || name == "undefined") {
        return subject.is<Undefined>() == (name == "undefined");
    }
    if (name == "none") {
        return subject.is<None>();
    }
    if (name == "string") {
        return subject.text() != nullptr;
    }
    if (name == "mapping") {
        return subject.dict() != nullptr;
    }
    if (name == "iterable" || name == "sequence") {
        return sequence;
    }
    if (name == "number") {
        return subject.is_number();
    }
    if (name == "integer") {
        return subject.is<int64_t>();
    }
    if (name == "float") {
        return subject.is<double>();
    }
    if (name == "boolean") {
        return subject.is<bool>();
    }
    if (name == "true" || name == "false") {
        return subject.is<bool>() && subject.as<bool>() == (name == "true");
    }
    // Comparisons with an argument.
    if (name == "equalto" || name == "eq" || name == "==") {
        return equal(subject, argument(), budget);
    }
    if (name == "ne" || name == "!=") {
        return !equal(subject, argument(), budget);
    }
    if (name == "in") {
        return contains(argument(), subject, budget);
    }
    if (name == "odd" || name == "even") {
        return (remainder(2) == 0) == (name == "even");
    }
    if (name == "divisibleby") {
        return remainder(argument().integer("a divisor")) == 0;
    }
    fail(Status::unsupported, "chat template: the test '%.40s' is not supported",
         std::string(name).c_str());
}

} // namespace stasis::jinja
