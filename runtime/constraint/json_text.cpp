// The parser of JSON for schemas; see json_text.h.
#include "runtime/constraint/json_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include "format/state/error.h"
#include "runtime/constraint/characters.h"
#include "runtime/constraint/hex.h"

namespace stasis::constraint {

namespace {

using JsonKind = JsonValue::Kind;

class JsonReader {
  public:
    explicit JsonReader(std::string_view text) : text_(text) {}

    JsonValue read() {
        JsonValue value = read_value(0);
        if (at_ < text_.size()) {
            bad("more after its value");
        }
        return value;
    }

  private:
    [[noreturn]] void bad(const char *what) const {
        fail(Status::invalid_argument, "the schema is not JSON: %s at byte %zu", what, at_);
    }
    void skip_blanks() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' ||
                                      text_[at_] == '\n' || text_[at_] == '\r')) {
            ++at_;
        }
    }
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    bool take(char byte) {
        const bool found = at_ < text_.size() && text_[at_] == byte;
        at_ += found ? 1 : 0;
        return found;
    }
    JsonValue read_value(uint32_t depth);
    void read_array(JsonValue &value, uint32_t depth);
    void read_object(JsonValue &value, uint32_t depth);
    std::string read_string();
    uint32_t read_escape();
    std::string read_number();
    void read_digits();

    std::string_view text_;
    size_t at_ = 0;
};

JsonValue JsonReader::read_value(uint32_t depth) {
    skip_blanks();
    JsonValue value;
    value.offset = at_;
    if (depth == kNestingMax) {
        fail(Status::unsupported, "the schema is nested deeper than %u at byte %zu", kNestingMax,
             at_);
    }
    const auto word = [&](std::string_view spelled) {
        const bool found = text_.substr(at_, spelled.size()) == spelled;
        at_ += found ? spelled.size() : 0;
        return found;
    };
    if (peek() == '{') {
        read_object(value, depth);
    } else if (peek() == '[') {
        read_array(value, depth);
    } else if (peek() == '"') {
        value.kind = JsonKind::string;
        value.text = read_string();
    } else if (peek() == '-' || (peek() >= '0' && peek() <= '9')) {
        value.kind = JsonKind::number;
        value.text = read_number();
    } else if (word("true") || word("false")) {
        value.kind = JsonKind::boolean;
        value.boolean = text_[at_ - 2] == 'u';
    } else if (!word("null")) {
        bad("no value");
    }
    skip_blanks();
    return value;
}

void JsonReader::read_array(JsonValue &value, uint32_t depth) {
    value.kind = JsonKind::array;
    ++at_;
    skip_blanks();
    if (take(']')) {
        return;
    }
    do {
        value.values.push_back(read_value(depth + 1));
    } while (take(','));
    if (!take(']')) {
        bad("an array without its ]");
    }
}

void JsonReader::read_object(JsonValue &value, uint32_t depth) {
    value.kind = JsonKind::object;
    ++at_;
    skip_blanks();
    if (take('}')) {
        return;
    }
    std::set<std::string> names;
    do {
        skip_blanks();
        if (peek() != '"') {
            bad("no name of a member");
        }
        const size_t begin = at_;
        value.keys.push_back(read_string());
        if (!names.insert(value.keys.back()).second) {
            at_ = begin;
            bad("a name given twice");
        }
        skip_blanks();
        if (!take(':')) {
            bad("no : after the name of a member");
        }
        value.values.push_back(read_value(depth + 1));
    } while (take(','));
    if (!take('}')) {
        bad("an object without its }");
    }
}

std::string JsonReader::read_string() {
    const size_t begin = at_++;
    std::string result;
    while (!take('"')) {
        if (at_ == text_.size()) {
            at_ = begin;
            bad("a string without its end");
        }
        if (peek() == '\\') {
            result += utf8(read_escape());
        } else if (static_cast<uint8_t>(peek()) < 0x20) {
            bad("a control character in a string");
        } else {
            result += utf8(next_character(text_, at_));
        }
    }
    return result;
}

uint32_t JsonReader::read_escape() {
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const size_t begin = at_++;
    if (take('u')) {
        const uint32_t high = read_hex(text_, at_, 4, "the schema");
        if (high < 0xD800 || high >= 0xE000) {
            return high;
        }
        if (high < 0xDC00 && take('\\') && take('u')) {
            const uint32_t low = read_hex(text_, at_, 4, "the schema");
            if (low >= 0xDC00 && low < 0xE000) {
                return 0x10000 + ((high - 0xD800) << 10U) + (low - 0xDC00);
            }
        }
        at_ = begin;
        bad("half a surrogate pair");
    }
    const size_t found = peek() == '\0' ? std::string_view::npos : kLetters.find(peek());
    if (found == std::string_view::npos) {
        at_ = begin;
        bad("an unknown escape");
    }
    ++at_;
    return static_cast<uint8_t>(kMeanings[found]);
}

void JsonReader::read_digits() {
    if (peek() < '0' || peek() > '9') {
        bad("a number without digits where they must be");
    }
    while (peek() >= '0' && peek() <= '9') {
        ++at_;
    }
}

std::string JsonReader::read_number() {
    const size_t begin = at_;
    take('-');
    if (!take('0')) {
        read_digits();
    }
    if (take('.')) {
        read_digits();
    }
    if (take('e') || take('E')) {
        if (!take('+')) {
            take('-');
        }
        read_digits();
    }
    return std::string(text_.substr(begin, at_ - begin));
}

std::string spelled(const Decimal &number) {
    std::string text = number.negative && !number.zero() ? "-" : "";
    text += number.whole.empty() ? "0" : number.whole;
    return number.fraction.empty() ? text : text + "." + number.fraction;
}

} // namespace

const JsonValue *JsonValue::find(std::string_view key) const {
    const auto found = std::find(keys.begin(), keys.end(), key);
    return found == keys.end() ? nullptr : &values[static_cast<size_t>(found - keys.begin())];
}

JsonValue read_json(std::string_view text) {
    return JsonReader(text).read();
}

std::string canonical(const JsonValue &value) {
    std::string text;
    switch (value.kind) {
    case JsonKind::null:
        return "null";
    case JsonKind::boolean:
        return value.boolean ? "true" : "false";
    case JsonKind::number:
        return spelled(decimal(value));
    case JsonKind::string:
        return "\"" + json_spelled(value.text) + "\"";
    case JsonKind::array:
        for (const JsonValue &each : value.values) {
            text += (text.empty() ? "" : ",") + canonical(each);
        }
        return "[" + text + "]";
    case JsonKind::object:
        break;
    }
    std::vector<std::string> members;
    for (size_t i = 0; i < value.keys.size(); ++i) {
        members.push_back("\"" + json_spelled(value.keys[i]) + "\":" + canonical(value.values[i]));
    }
    std::sort(members.begin(), members.end());
    for (const std::string &each : members) {
        text += (text.empty() ? "" : ",") + each;
    }
    return "{" + text + "}";
}

Decimal decimal(const JsonValue &number) {
    constexpr int kExponentMax = 400; // beyond the range of a double
    const std::string &text = number.text;
    Decimal result;
    result.negative = text[0] == '-';
    const size_t end = std::min(text.find_first_of("eE"), text.size());
    std::string digits;
    int point = -1, exponent = 0;
    for (size_t i = result.negative ? 1 : 0; i < end; ++i) {
        if (text[i] == '.') {
            point = static_cast<int>(digits.size());
        } else {
            digits += text[i];
        }
    }
    point = point < 0 ? static_cast<int>(digits.size()) : point;
    const bool down = end < text.size() && text[end + 1] == '-';
    for (size_t i = end + 1; i < text.size(); ++i) {
        if (text[i] >= '0' && text[i] <= '9') {
            exponent = std::min(exponent * 10 + (text[i] - '0'), kExponentMax + 1);
        }
    }
    if (exponent > kExponentMax) {
        fail(Status::unsupported, "the schema has a number with an exponent beyond %d at byte %zu",
             kExponentMax, number.offset);
    }
    point += down ? -exponent : exponent;
    if (point < 0) {
        digits.insert(0, static_cast<size_t>(-point), '0');
        point = 0;
    }
    const auto split = static_cast<size_t>(point);
    digits.resize(std::max(digits.size(), split), '0');
    result.whole = digits.substr(0, split);
    result.fraction = digits.substr(split);
    result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
    result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
    return result;
}

} // namespace stasis::constraint
