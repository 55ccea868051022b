// What a model's files say of it, by key: the metadata of a GGUF file, or the fields of a
// directory's JSON files. Kept as long as the model is open, within limits. Knows no key's meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/gguf/gguf.h"

namespace stasis {

struct MetadataEntry {
    enum class Kind {
        text,     // the value itself
        json,     // a number, a boolean, null or an array
        left_out, // too large to be kept: the value says what it is
    };

    std::string key;
    Kind kind = Kind::text;
    std::string value; // UTF-8
};

// Ascending by key, each key once.
class Metadata {
  public:
    Metadata() = default;
    explicit Metadata(std::vector<MetadataEntry> entries);

    const std::vector<MetadataEntry> &all() const { return entries_; }
    const MetadataEntry *find(std::string_view key) const; // null: there is none

  private:
    std::vector<MetadataEntry> entries_;
};

// Reads a GGUF file's, whose values were checked.
Metadata read_metadata(const GgufFile &file);
// Reads a directory's. A file that is no JSON is left out. Throws Error(io).
Metadata read_metadata(const ModelFolder &folder);

} // namespace stasis
