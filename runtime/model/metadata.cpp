// Metadata as texts and JSON; see metadata.h. Larger values and vocabularies are left out.
#include "runtime/model/metadata.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "format/state/json_writer.h"
#include "runtime/host/utf8.h"
#include "runtime/model/gguf/cursor.h"
#include "runtime/model/gguf/values.h"
#include "runtime/model/json_file.h"

namespace stasis {

namespace {

using Kind = MetadataEntry::Kind;

constexpr size_t kElementsMost = 256;   // of an array
constexpr size_t kMembersMost = 64;     // of an object within a file's
constexpr size_t kKeyMost = 1024;       // bytes of a key
constexpr size_t kValueMost = 1U << 20; // bytes of a value
constexpr size_t kAllMost = 4U << 20;   // bytes of all keys and values
constexpr size_t kFileMost = 64U << 20; // bytes of a file
constexpr const char *kFiles[] = {"config", "generation_config", "tokenizer_config"};
constexpr const char *kTemplateFile = "chat_template.jinja", *kTemplateKey = "chat_template";

// Entries as they are found, within the limits.
class Collector {
  public:
    void add(const std::string &key, Kind kind, std::string value) {
        if (key.size() > kKeyMost || key.find('\0') != std::string::npos) {
            return; // nobody can ask for it
        }
        full_ = full_ || key.size() > kAllMost - kept_;
        if (full_) {
            return;
        }
        kept_ += key.size();
        const size_t bytes = value.size();
        if (kind != Kind::left_out && (bytes > kValueMost || bytes > kAllMost - kept_)) {
            kind = Kind::left_out;
            value = (bytes > kValueMost ? "a value of " : "beyond the limit: a value of ") +
                    std::to_string(bytes) + " bytes";
        }
        kept_ += kind == Kind::left_out ? 0 : bytes;
        entries_.push_back({key, kind, std::move(value)});
    }
    // Returns whether nothing more is added.
    bool full() const { return full_; }
    Metadata finish() { return Metadata(std::move(entries_)); }

  private:
    std::vector<MetadataEntry> entries_;
    size_t kept_ = 0; // bytes of keys, and of values that are not left out
    bool full_ = false;
};

// Returns the double with the fewest digits that stands for a number of 32 bits.
double widened(float number) {
    char digits[64];
    const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, number);
    double wide = static_cast<double>(number);
    if (std::isfinite(number)) {
        std::from_chars(digits, end.ptr, wide);
    }
    return wide;
}

// Writes a value of a GGUF file, or an element, and moves past it.
void write_value(GgufCursor &cursor, GgufValueType type, JsonWriter &writer) {
    switch (type) {
    case GgufValueType::u8:
        writer.value(cursor.number<uint8_t>());
        break;
    case GgufValueType::i8:
        writer.value(cursor.number<int8_t>());
        break;
    case GgufValueType::u16:
        writer.value(cursor.number<uint16_t>());
        break;
    case GgufValueType::i16:
        writer.value(cursor.number<int16_t>());
        break;
    case GgufValueType::u32:
        writer.value(cursor.number<uint32_t>());
        break;
    case GgufValueType::i32:
        writer.value(cursor.number<int32_t>());
        break;
    case GgufValueType::u64:
        writer.value(cursor.number<uint64_t>());
        break;
    case GgufValueType::i64:
        writer.value(cursor.number<int64_t>());
        break;
    case GgufValueType::f32:
        writer.value(widened(cursor.number<float>()));
        break;
    case GgufValueType::f64:
        writer.value(cursor.number<double>());
        break;
    case GgufValueType::boolean:
        writer.value(cursor.number<uint8_t>() != 0);
        break;
    case GgufValueType::string:
        writer.value(cursor.text());
        break;
    case GgufValueType::array: {
        const auto element = static_cast<GgufValueType>(cursor.number<uint32_t>());
        const auto count = cursor.number<uint64_t>();
        writer.begin_array();
        for (uint64_t i = 0; i < count; ++i) {
            write_value(cursor, element, writer);
        }
        writer.end_array();
        break;
    }
    }
}

void add_value(const GgufFile &file, const std::string &key, const GgufValue &value,
               Collector &collector) {
    GgufCursor cursor(value.data, value.size_bytes, file.names[0]);
    if (value.type == GgufValueType::string) {
        collector.add(key, Kind::text, well_formed_utf8(cursor.text()));
        return;
    }
    JsonWriter writer;
    if (value.type != GgufValueType::array) {
        write_value(cursor, value.type, writer);
        collector.add(key, Kind::json, writer.take());
        return;
    }
    if (value.count > kElementsMost || value.size_bytes > kValueMost) {
        collector.add(key, Kind::left_out,
                      "an array of " + std::to_string(value.count) + " " +
                          gguf_value_name(value.element));
        return;
    }
    writer.begin_array();
    for (uint64_t i = 0; i < value.count; ++i) {
        write_value(cursor, value.element, writer);
    }
    writer.end_array();
    collector.add(key, Kind::json, writer.take());
}

// Adds a value under its key; the members of an object each under a key of its own.
void add_json(const std::string &key, const Json &json, bool whole_file, Collector &collector) {
    const Json::Object *object = json.object();
    const Json::Array *array = json.array();
    if (object != nullptr && !object->empty()) {
        if (!whole_file && object->size() > kMembersMost) {
            collector.add(key, Kind::left_out,
                          "an object of " + std::to_string(object->size()) + " members");
            return;
        }
        for (const Json::Member &member : *object) {
            // Before a key is made: many members may have one long key before their own.
            if (!collector.full() && key.size() + member.key.size() < kKeyMost) {
                add_json(key + "." + member.key, member.value, false, collector);
            }
        }
        return;
    }
    if (array != nullptr && array->size() > kElementsMost) {
        collector.add(key, Kind::left_out,
                      "an array of " + std::to_string(array->size()) + " elements");
        return;
    }
    if (json.text() != nullptr) {
        collector.add(key, Kind::text, *json.text());
        return;
    }
    collector.add(key, Kind::json, written(json));
}

} // namespace

Metadata::Metadata(std::vector<MetadataEntry> entries) : entries_(std::move(entries)) {
    const auto by_key = [](const MetadataEntry &a, const MetadataEntry &b) {
        return a.key < b.key;
    };
    std::stable_sort(entries_.begin(), entries_.end(), by_key);
    // Members whose names have dots can come to the key of another: the first one has it.
    const auto same = [](const MetadataEntry &a, const MetadataEntry &b) { return a.key == b.key; };
    entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
}

const MetadataEntry *Metadata::find(std::string_view key) const {
    const auto at = std::lower_bound(
        entries_.begin(), entries_.end(), key,
        [](const MetadataEntry &entry, std::string_view wanted) { return entry.key < wanted; });
    return at != entries_.end() && at->key == key ? &*at : nullptr;
}

Metadata read_metadata(const GgufFile &file) {
    Collector collector;
    for (const auto &[key, value] : file.metadata) {
        add_value(file, key, value, collector);
    }
    return collector.finish();
}

namespace {

// Adds what a file says, if it is there. One that cannot be read as what it is, is left out.
template <typename Read>
void add_file(const ModelFolder &folder, const std::string &file, const std::string &key,
              Collector &collector, const Read &read) {
    if (!folder.has(file)) {
        return;
    }
    try {
        read(folder.text(file, kFileMost));
    } catch (const Error &error) {
        if (error.status() != Status::corrupt) {
            throw;
        }
        collector.add(key, Kind::left_out, well_formed_utf8(error.what()));
    }
}

} // namespace

Metadata read_metadata(const ModelFolder &folder) {
    Collector collector;
    for (const std::string name : kFiles) {
        const std::string file = name + ".json";
        add_file(folder, file, name, collector, [&](const std::string &text) {
            add_json(name, parse_json(text, file), true, collector);
        });
    }
    add_file(folder, kTemplateFile, kTemplateKey, collector, [&](const std::string &text) {
        collector.add(kTemplateKey, Kind::text, well_formed_utf8(text));
    });
    return collector.finish();
}

} // namespace stasis
