// Values of the template interpreter and Python's operations on them: truth, equality, text, JSON.
// Lists and dicts never change after they are made and hold no namespace, so no cycle can exist.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stasis::jinja {

struct Node;
struct Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>; // in the order of insertion

// The remaining cost of a rendering: one unit for each node evaluated and each byte or element
// made.
struct Budget {
    size_t left = 0;
    bool exhausted = false;
    void spend(size_t units); // throws Error(unsupported) when used up
};

struct Undefined {
    // The destructor is written out so that this type is not trivially copyable. If all
    // alternatives are trivially copyable, texts or shared pointers, libstdc++ (at least up to 12)
    // assumes that a variant always has a value. If copying a text then runs out of memory, the
    // variant's copy constructor destroys a text that was never made.
    ~Undefined() {}
};
struct None {};
class OpenList; // open_list.h
struct ListValue {
    List items;
    int depth = 1;                            // of nested lists and dicts
    std::shared_ptr<OpenList> open = nullptr; // if not null, it has the items
};
struct DictValue {
    Dict items;
    int depth = 1;
    const Value *find(std::string_view key) const;
};
struct Namespace {
    Dict items; // the only contents that templates may change
};
enum class Builtin { raise_exception, strftime_now, namespace_, range, dict };
struct Macro {
    const Node *node;
};

struct Value {
    using Data = std::variant<Undefined, None, bool, int64_t, double, std::string,
                              std::shared_ptr<const ListValue>, std::shared_ptr<const DictValue>,
                              std::shared_ptr<Namespace>, Builtin, Macro>;
    Data data = Undefined{};

    Value() = default;
    Value(Data value) : data(std::move(value)) {}
    Value(const char *text) : data(std::string(text)) {}
    Value(std::string text) : data(std::move(text)) {}

    template <class T> bool is() const { return std::holds_alternative<T>(data); }
    template <class T> const T &as() const { return std::get<T>(data); }

    const std::string *text() const { return std::get_if<std::string>(&data); }
    const ListValue *list() const; // closes an open list
    OpenList *open_list() const;   // null for every other value
    const DictValue *dict() const;
    // Returns the integer of an int or bool; throws Error(unsupported) naming `what` otherwise.
    int64_t integer(const char *what) const;
    bool is_number() const { return is<bool>() || is<int64_t>() || is<double>(); }
    double number() const; // for a value that is_number
};

// Throw Error(unsupported) for a value that a container may not hold, or that is nested too deep.
Value make_list(List items);
Value make_dict(Dict items);
void check_storable(const Value &value);

size_t cost(const Value &value); // units that a copy costs
bool truthy(const Value &value);
bool equal(const Value &a, const Value &b, Budget &budget);
bool contains(const Value &container, const Value &item, Budget &budget);
// Returns the elements in order: list items, dict keys, characters of a string.
List elements(const Value &value, Budget &budget);
size_t length(const Value &value);
const char *type_name(const Value &value);

void append_text(const Value &value, std::string &out, Budget &budget); // as {{ }} prints it
std::string to_text(const Value &value, Budget &budget);

// The options of Python's json.dumps.
struct JsonStyle {
    int indent = -1; // negative: one line
    bool ascii = false, sorted = false;
    std::string between = ", ", after_key = ": ";
};
std::string to_json(const Value &value, const JsonStyle &style, Budget &budget);
// Reads JSON; objects keep the order of their members. Throws Error(invalid_argument) that begins
// with `what`: not JSON, a key given twice, an integer beyond 64 bits, nested too deep.
Value from_json(std::string_view text, const std::string &what);

// Strips as Python's str.strip: the characters of `set`, or Unicode whitespace if `set` is null.
// chat.cpp uses it too, because stripping of message contents must agree with it.
std::string_view strip(std::string_view text, bool left, bool right,
                       const std::string *set = nullptr);
// Returns the characters of valid UTF-8; a byte that belongs to none is an element of its own.
std::vector<std::string_view> characters(std::string_view text);

} // namespace stasis::jinja
