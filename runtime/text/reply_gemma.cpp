// The arguments of Gemma 4's calls: {key:value,...} with strings inside <|"|>, and no other quotes.
#include <algorithm>
#include <optional>
#include <utility>

#include "format/state/error.h"
#include "runtime/text/reply.h"

namespace stasis {

namespace {

using jinja::Value;

constexpr std::string_view kArgumentQuote = "<|\"|>";
constexpr int kArgumentNestMax = 24; // lists and dicts inside one another

class ArgumentReader {
  public:
    explicit ArgumentReader(std::string_view text) : text_(text) {}

    // Returns nothing unless the text is one value.
    std::optional<Value> run() {
        auto value = read(0);
        return value && at_ == text_.size() ? std::move(value) : std::nullopt;
    }

  private:
    bool take(std::string_view what) {
        if (!text_.substr(at_).starts_with(what)) {
            return false;
        }
        at_ += what.size();
        return true;
    }
    std::string_view until(std::string_view stops) {
        const size_t begin = at_;
        at_ = std::min(text_.find_first_of(stops, at_), text_.size());
        return text_.substr(begin, at_ - begin);
    }
    std::optional<std::string> quoted() {
        const size_t end = text_.find(kArgumentQuote, at_);
        if (end == std::string_view::npos) {
            return std::nullopt;
        }
        std::string text(text_.substr(at_, end - at_));
        at_ = end + kArgumentQuote.size();
        return text;
    }
    std::optional<Value> read(int nest) {
        if (nest > kArgumentNestMax) {
            return std::nullopt;
        }
        if (take(kArgumentQuote)) {
            auto text = quoted();
            return text ? std::optional(Value(std::move(*text))) : std::nullopt;
        }
        if (take("{")) {
            return dict(nest);
        }
        return take("[") ? list(nest) : scalar();
    }
    // Numbers, true, false and null are those of JSON; another word is a string without quotes.
    std::optional<Value> scalar() {
        const std::string word(until(",}]"));
        if (word.empty()) {
            return std::nullopt;
        }
        if (word == "None") { // as the template prints it
            return Value(Value::Data(jinja::None{}));
        }
        if (word.find_first_of("{[\"") == std::string::npos) {
            try {
                return jinja::from_json(word, "");
            } catch (const Error &) { // not JSON
            }
        }
        return Value(word);
    }
    std::optional<Value> list(int nest) {
        jinja::List items;
        while (!take("]")) {
            auto item = !items.empty() && !take(",") ? std::nullopt : read(nest + 1);
            if (!item) {
                return std::nullopt;
            }
            items.push_back(std::move(*item));
        }
        return jinja::make_list(std::move(items));
    }
    std::optional<Value> dict(int nest) {
        jinja::Dict items;
        while (!take("}")) {
            if (!items.empty() && !take(",")) {
                return std::nullopt;
            }
            const auto key =
                take(kArgumentQuote) ? quoted() : std::optional(std::string(until(":,}")));
            auto value = key && !key->empty() && take(":") ? read(nest + 1) : std::nullopt;
            if (!value || std::any_of(items.begin(), items.end(),
                                      [&](const auto &item) { return item.first == *key; })) {
                return std::nullopt;
            }
            items.emplace_back(*key, std::move(*value));
        }
        return jinja::make_dict(std::move(items));
    }

    std::string_view text_;
    size_t at_ = 0;
};

} // namespace

Value read_gemma_arguments(std::string_view text) {
    const auto value = ArgumentReader(text).run();
    return value && value->dict() != nullptr ? *value : Value();
}

} // namespace stasis
