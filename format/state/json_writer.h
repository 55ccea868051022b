// JSON text, written straight into a string or into the caller's memory: no tree, nothing to free
// when an allocation fails.
// (nlohmann's trees allocate in their destructors, where a failure ends the process.) Knows nothing
// of what is written.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace stasis {

// Sets commas itself; brackets and keys are the caller's to pair. Bytes of texts that are not UTF-8
// become U+FFFD, one for each maximal part of a character (Unicode, chapter 3.9, table 3-11).
class JsonWriter {
  public:
    JsonWriter() = default;
    // Into the room that the caller has, as far as it goes; length() tells what is needed.
    explicit JsonWriter(std::span<char> room) : room_(room) {}

    JsonWriter &begin_object() { return open('{'); }
    JsonWriter &end_object() { return close('}'); }
    JsonWriter &begin_array() { return open('['); }
    JsonWriter &end_array() { return close(']'); }
    JsonWriter &key(std::string_view name);

    JsonWriter &null() { return word("null"); }
    JsonWriter &value(bool value) { return word(value ? "true" : "false"); }
    JsonWriter &value(std::integral auto value) { return word(std::to_string(value)); }
    // The shortest digits that are read as the same number; null for what JSON cannot say.
    JsonWriter &value(double value);
    JsonWriter &value(float value) { return this->value(static_cast<double>(value)); }
    JsonWriter &value(std::string_view text);
    JsonWriter &value(const char *text) { return value(std::string_view(text)); }
    JsonWriter &value(const std::string &text) { return value(std::string_view(text)); }

    // A text that comes in parts; a character may be split between them.
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
    const std::string &text() const { return text_; } // of a writer without the caller's room
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
    char last_ = '[';        // written; at first as behind a bracket
    std::string begun_ = {}; // the first bytes of a character of which a part brings the others
};

} // namespace stasis
