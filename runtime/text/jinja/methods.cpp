// Attributes, indices, slices, methods of strings and dicts, and the global functions, as in
// Python; case conversion knows ASCII only.
#include <algorithm>
#include <iomanip>
#include <locale>
#include <sstream>

#include "format/state/error.h"
#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/jinja.h"
#include "runtime/text/jinja/open_list.h"

namespace stasis::jinja {

namespace {

char upper(char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
}
char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

const std::string &string_argument(const Arguments &arguments, size_t index, const char *what) {
    const Value *value = arguments.find(index, "");
    if (value == nullptr || value->text() == nullptr) {
        fail(Status::unsupported, "chat template: %s needs a string", what);
    }
    return *value->text();
}

Value change_case(std::string text, std::string_view name) {
    bool word = true; // the next letter starts a word
    for (char &c : text) {
        const bool capital = name == "upper" || (name != "lower" && word);
        const bool letter = upper(c) != lower(c);
        c = capital ? upper(c) : lower(c);
        word = name == "title" && !letter;
    }
    return {std::move(text)};
}

Value split(const std::string &text, const Arguments &arguments, Budget &budget) {
    const Value *separator = arguments.find(0, "sep");
    const Value *maximum = arguments.find(1, "maxsplit");
    int64_t left = maximum != nullptr ? maximum->integer("maxsplit") : -1;
    budget.spend(text.size());
    List out;
    // Without a separator, text is split at runs of whitespace, and those at both ends are dropped.
    if (separator == nullptr || separator->is<None>()) {
        std::string_view rest = strip(text, true, false);
        while (!rest.empty()) {
            size_t end = 0;
            while (left != 0 && end < rest.size() &&
                   !strip(rest.substr(end, 1), true, false).empty()) {
                ++end;
            }
            end = left == 0 ? rest.size() : end;
            out.emplace_back(std::string(rest.substr(0, end)));
            rest = strip(rest.substr(end), true, false);
            left -= left > 0 ? 1 : 0;
        }
        return make_list(std::move(out));
    }
    // With a separator, empty parts stay.
    if (separator->text() == nullptr || separator->text()->empty()) {
        fail(Status::unsupported, "chat template: split needs a separator that is not empty");
    }
    size_t begin = 0, at = 0;
    while (left != 0 && (at = text.find(*separator->text(), begin)) != std::string::npos) {
        out.emplace_back(text.substr(begin, at - begin));
        begin = at + separator->text()->size();
        left -= left > 0 ? 1 : 0;
    }
    out.emplace_back(text.substr(begin));
    return make_list(std::move(out));
}

Value replace(const std::string &text, const Arguments &arguments, Budget &budget) {
    const std::string &from = string_argument(arguments, 0, "replace");
    const std::string &to = string_argument(arguments, 1, "replace");
    if (from.empty()) {
        fail(Status::unsupported, "chat template: replace of an empty string is not supported");
    }
    budget.spend(text.size());
    std::string out;
    size_t begin = 0, at = 0;
    while ((at = text.find(from, begin)) != std::string::npos) {
        budget.spend(to.size());
        out.append(text, begin, at - begin).append(to);
        begin = at + from.size();
    }
    out.append(text, begin);
    return {std::move(out)};
}

Value affix(const std::string &text, const Arguments &arguments, bool start) {
    // Both methods accept one text or a list of them.
    const auto matches = [&](const Value &affix) {
        const std::string *part = affix.text();
        return part != nullptr && (start ? text.starts_with(*part) : text.ends_with(*part));
    };
    const Value *argument = arguments.find(0, "");
    const ListValue *list = argument != nullptr ? argument->list() : nullptr;
    if (list != nullptr) {
        return {Value::Data(std::any_of(list->items.begin(), list->items.end(), matches))};
    }
    string_argument(arguments, 0, start ? "startswith" : "endswith");
    return {Value::Data(matches(*argument))};
}

Value string_method(const std::string &text, std::string_view name, const Arguments &arguments,
                    Budget &budget) {
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
        const Value *set = arguments.find(0, "");
        return {std::string(strip(text, name != "rstrip", name != "lstrip",
                                  set != nullptr ? set->text() : nullptr))};
    }
    if (name == "upper" || name == "lower" || name == "title" || name == "capitalize") {
        return change_case(text, name);
    }
    if (name == "split") {
        return split(text, arguments, budget);
    }
    if (name == "replace") {
        return replace(text, arguments, budget);
    }
    if (name == "startswith" || name == "endswith") {
        return affix(text, arguments, name == "startswith");
    }
    if (name == "find") {
        const size_t at = text.find(string_argument(arguments, 0, "find"));
        return {Value::Data(at == std::string::npos
                                ? int64_t{-1}
                                : static_cast<int64_t>(characters(text.substr(0, at)).size()))};
    }
    fail(Status::unsupported, "chat template: strings have no method '%.40s' here",
         std::string(name).c_str());
}

Value dict_method(const DictValue &dict, std::string_view name, const Arguments &arguments,
                  Budget &budget) {
    budget.spend(dict.items.size());
    List out;
    // `get` needs one item, the others all.
    if (name == "get") {
        const Value *found = dict.find(string_argument(arguments, 0, "get"));
        const Value *otherwise = arguments.find(1, "default");
        return found != nullptr       ? *found
               : otherwise != nullptr ? *otherwise
                                      : Value(Value::Data(None{}));
    }
    for (const auto &[key, value] : dict.items) {
        budget.spend(key.size() + cost(value));
        if (name == "keys") {
            out.emplace_back(key);
        } else if (name == "values") {
            out.push_back(value);
        } else if (name == "items") {
            budget.spend(2);
            out.push_back(make_list({Value(key), value}));
        } else {
            break;
        }
    }
    if (name != "keys" && name != "values" && name != "items") {
        fail(Status::unsupported, "chat template: dicts have no method '%.40s' here",
             std::string(name).c_str());
    }
    return make_list(std::move(out));
}

Value range(const Arguments &arguments, Budget &budget) {
    const size_t count = arguments.positional.size();
    if (count < 1 || count > 3) {
        fail(Status::unsupported, "chat template: range takes one to three arguments");
    }
    const int64_t begin = count > 1 ? arguments.positional[0].integer("range") : 0;
    const int64_t end = arguments.positional[count > 1 ? 1 : 0].integer("range");
    const int64_t step = count > 2 ? arguments.positional[2].integer("range") : 1;
    constexpr int64_t kLimit = int64_t{1} << 40; // keeps the sums below from overflowing
    if (step == 0 || std::max({begin, end, step}) > kLimit ||
        std::min({begin, end, step}) < -kLimit) {
        fail(Status::unsupported, "chat template: range with a step of 0 or too large numbers");
    }
    List out;
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
        budget.spend(1);
        out.emplace_back(Value::Data(i));
    }
    return make_list(std::move(out));
}

std::string format_time(const std::string &format, std::time_t date, Budget &budget) {
    budget.spend(format.size() * 32); // upper bound of a conversion
    std::tm day{};
    gmtime_r(&date, &day);
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << std::put_time(&day, format.c_str());
    return out.str();
}

} // namespace

const Value *Arguments::find(size_t index, std::string_view name) const {
    if (index < positional.size()) {
        return &positional[index];
    }
    for (const auto &[key, value] : keyword) {
        if (!name.empty() && key == name) {
            return &value;
        }
    }
    return nullptr;
}

Value call_method(const Value &object, std::string_view name, const Arguments &arguments,
                  Budget &budget) {
    if (const std::string *text = object.text()) {
        return string_method(*text, name, arguments, budget);
    }
    if (const DictValue *dict = object.dict()) {
        return dict_method(*dict, name, arguments, budget);
    }
    fail(Status::unsupported, "chat template: %s has no method '%.40s' here", type_name(object),
         std::string(name).c_str());
}

Value call_builtin(Builtin builtin, const Arguments &arguments, std::time_t date, Budget &budget) {
    switch (builtin) {
    case Builtin::raise_exception:
        throw Refusal(arguments.positional.empty() ? std::string("refused")
                                                   : to_text(arguments.positional[0], budget));
    case Builtin::strftime_now:
        return {format_time(string_argument(arguments, 0, "strftime_now"), date, budget)};
    case Builtin::namespace_:
        for (const auto &[key, value] : arguments.keyword) {
            check_storable(value);
        }
        return {std::make_shared<Namespace>(Namespace{arguments.keyword})};
    case Builtin::range:
        return range(arguments, budget);
    case Builtin::dict:
        return make_dict(arguments.keyword);
    }
    return {};
}

Value get_attribute(const Value &object, std::string_view name) {
    if (object.is<Undefined>()) {
        fail(Status::unsupported, "chat template: '%.40s' of something undefined",
             std::string(name).c_str());
    }
    const DictValue *dict = object.dict();
    if (dict != nullptr) {
        const Value *found = dict->find(name);
        return found != nullptr ? *found : Value();
    }
    if (object.is<std::shared_ptr<Namespace>>()) {
        for (const auto &[key, value] : object.as<std::shared_ptr<Namespace>>()->items) {
            if (key == name) {
                return value;
            }
        }
    }
    return {};
}

Value get_item(const Value &object, const Value &index, Budget &budget) {
    if (const std::string *key = index.text()) {
        return get_attribute(object, *key);
    }
    if (object.is<Undefined>()) {
        fail(Status::unsupported, "chat template: something undefined indexed by %s",
             type_name(index));
    }
    const bool number = index.is<int64_t>() || index.is<bool>();
    if (OpenList *open = object.open_list(); open != nullptr && number) {
        const int64_t at = index.integer("an index");
        if (at >= 0) {
            return open->item(static_cast<size_t>(at));
        }
    }
    if ((object.list() == nullptr && object.text() == nullptr) || !number) {
        return {}; // as Jinja: what has no such item gives something undefined
    }
    // A text is indexed by characters, so its elements are made first.
    const ListValue *list = object.list();
    const List made = list != nullptr ? List() : elements(object, budget);
    const List &items = list != nullptr ? list->items : made;
    const auto count = static_cast<int64_t>(items.size());
    int64_t at = index.integer("an index");
    at += at < 0 ? count : 0;
    return at >= 0 && at < count ? items[static_cast<size_t>(at)] : Value();
}

Value get_slice(const Value &object, const Value &begin, const Value &end, const Value &step,
                Budget &budget) {
    const auto absent = [](const Value &v) { return v.is<Undefined>() || v.is<None>(); };
    if (OpenList *open = object.open_list(); open != nullptr && absent(end) && absent(step) &&
                                             begin.is<int64_t>() && begin.as<int64_t>() >= 0) {
        budget.spend(open->size());
        return open->rest(static_cast<size_t>(begin.as<int64_t>()));
    }
    const List items = elements(object, budget);
    const auto count = static_cast<int64_t>(items.size());
    const int64_t by = absent(step) ? 1 : step.integer("the step of a slice");
    if (by == 0 || by > count + 1 || by < -count - 1) {
        fail(Status::unsupported, "chat template: a slice with a step of %lld",
             static_cast<long long>(by));
    }
    // Bounds are clamped as in Python: negative ones count from the end.
    const auto clamp = [&](const Value &v, int64_t otherwise) {
        if (absent(v)) {
            return otherwise;
        }
        int64_t at = v.integer("a bound of a slice");
        at += at < 0 ? count : 0;
        return by > 0 ? std::clamp<int64_t>(at, 0, count) : std::clamp<int64_t>(at, -1, count - 1);
    };
    const int64_t first = clamp(begin, by > 0 ? 0 : count - 1);
    const int64_t last = clamp(end, by > 0 ? count : -1);
    List out;
    std::string text;
    for (int64_t i = first; by > 0 ? i < last : i > last; i += by) {
        const Value &item = items[static_cast<size_t>(i)];
        if (object.text() != nullptr) {
            text += *item.text();
        } else {
            out.push_back(item);
        }
    }
    return object.text() != nullptr ? Value(std::move(text)) : make_list(std::move(out));
}

} // namespace stasis::jinja
