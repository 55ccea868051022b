// JSON text, written straight into a string: no tree, nothing to free when an allocation fails.
// (nlohmann's trees allocate in their destructors, where a failure ends the process.) Knows nothing
// of what is written.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace stasis {

// Sets commas itself; brackets and keys are the caller's to pair. Bytes of texts that are not UTF-8
// become U+FFFD, one for each maximal part of a character (Unicode, chapter 3.9, table 3-11).
class JsonWriter {
  public:
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

    const std::string &text() const { return text_; }
    std::string take() { return std::move(text_); }

  private:
    JsonWriter &open(char bracket);
    JsonWriter &close(char bracket);
    JsonWriter &word(std::string_view word);
    void separate();
    void quote(std::string_view text);

    std::string text_;
};

} // namespace stasis
