// JSON text, written directly into a string or the caller's memory. There is no tree that would
// have to be freed when an allocation fails (nlohmann's trees allocate in their destructors, where
// a failure ends the process). Must not know what is written.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace stasis {

// Writes commas itself; the caller must pair brackets and alternate keys and values. Bytes of texts
// that are not UTF-8 become U+FFFD, one for each maximal part of a character (Unicode, chapter 3.9,
// table 3-11).
class JsonWriter {
  public:
    JsonWriter() = default;
    // Writes into the caller's memory, up to its end; length() returns the bytes that are needed.
    explicit JsonWriter(std::span<char> room) : room_(room) {}

    JsonWriter &begin_object() { return open('{'); }
    JsonWriter &end_object() { return close('}'); }
    JsonWriter &begin_array() { return open('['); }
    JsonWriter &end_array() { return close(']'); }
    JsonWriter &key(std::string_view name);

    JsonWriter &null() { return word("null"); }
    JsonWriter &value(bool value) { return word(value ? "true" : "false"); }
    JsonWriter &value(std::integral auto value) { return word(std::to_string(value)); }
    // Writes the shortest digits that are read as the same number; null for an infinity or NaN.
    JsonWriter &value(double value);
    JsonWriter &value(float value) { return this->value(static_cast<double>(value)); }
    JsonWriter &value(std::string_view text);
    JsonWriter &value(const char *text) { return value(std::string_view(text)); }
    JsonWriter &value(const std::string &text) { return value(std::string_view(text)); }

    // A text in several parts; a character may be split between them.
    JsonWriter &begin_text();
    JsonWriter &part(std::string_view text);
    JsonWriter &end_text();

    template <typename Value> JsonWriter &field(std::string_view name, const Value &of) {
        key(name);
        return value(of);
    }
    template <typename Values> JsonWriter &array(std::string_view name, const Values &of) {
        key(name).begin_array();
        for (const auto &each : of) {
            value(each);
        }
        return end_array();
    }

    size_t length() const { return length_; }
    const std::string &text() const { return text_; } // of a writer into a string
    std::string take() { return std::move(text_); }

  private:
    JsonWriter &open(char bracket);
    JsonWriter &close(char bracket);
    JsonWriter &word(std::string_view word);
    void separate();
    void put(std::string_view text);
    std::string_view quote(std::string_view text, bool last);

    std::optional<std::span<char>> room_;
    std::string text_;
    size_t length_ = 0;
    char last_ = '[';        // last character written; initially as after a bracket
    std::string begun_ = {}; // first bytes of a character that the next part completes
};

} // namespace stasis
