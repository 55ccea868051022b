// Collecting a report's data from snapshots; see data.h.
#include "tools/cli/report/data.h"

#include <charconv>
#include <filesystem>
#include <map>

#include "tools/cli/json_parts.h"
#include "tools/cli/model.h"
#include "tools/cli/snapshot.h"

namespace command::report {
namespace {

constexpr uint32_t kElements = 12;
constexpr uint32_t kKvCache = 1, kTokenBuffer = 4, kConfig = 6, kFormat = 11, kPromptMeta = 12;

std::string dump(const Json &json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Writes texts one after the other with commas between them.
class List {
  public:
    explicit List(const Out &out) : out_(out) { out_("["); }
    void add(std::string_view item) {
        out_(first_ ? "" : ",");
        out_(item);
        first_ = false;
    }
    void end() { out_("]"); }

  private:
    const Out &out_;
    bool first_ = true;
};

// Writes for each object of a list the values of its first `count` members.
void write_short(std::string_view objects, size_t count, const Out &out) {
    List list(out);
    for_each_part(objects, [&](std::string_view, std::string_view object) {
        std::string item;
        size_t at = 0;
        for_each_part(object, [&](std::string_view, std::string_view value) {
            if (at++ < count) {
                item += item.empty() ? '[' : ',';
                item += value;
            }
        });
        list.add(item + "]");
    });
    list.end();
}

// Writes [token, bytes in hexadecimal] for each text.
void write_texts(std::string_view texts, const Out &out) {
    List list(out);
    for_each_part(texts, [&](std::string_view, std::string_view text) {
        list.add("[" + std::string(member(text, "token")) + "," +
                 std::string(member(text, "bytes")) + "]");
    });
    list.end();
}

uint64_t number(std::string_view text) {
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

// Writes [group, index, valid slots, bytes, stored bytes, runs, last commit, codec, digest] for
// each page; commit and codec are those of the last run.
void write_pages(std::string_view pages, std::string_view sections, const Out &out) {
    std::map<uint64_t, std::string_view> at;
    for_each_part(sections, [&](std::string_view, std::string_view section) {
        at[number(member(section, "offset"))] = section;
    });
    List list(out);
    for_each_part(pages, [&](std::string_view, std::string_view page) {
        uint64_t stored = 0, runs = 0;
        std::string commit = "null", codec = "null";
        for_each_part(member(page, "runs"), [&](std::string_view, std::string_view run) {
            ++runs;
            stored += number(member(run, "stored"));
            const auto section = at.find(number(member(run, "offset")));
            if (section != at.end()) {
                commit = member(section->second, "commit");
                codec = member(section->second, "codec");
            }
        });
        std::string item = "[";
        for (const char *name : {"group", "index", "valid", "bytes"}) {
            item += std::string(member(page, name)) + ",";
        }
        list.add(item + std::to_string(stored) + "," + std::to_string(runs) + "," + commit + "," +
                 codec + "," + std::string(member(page, "digest")) + "]");
    });
    list.end();
}

// Returns for each kind of section: [name, number, stored bytes, raw bytes].
Json sums(std::string_view sections) {
    Json list = Json::array();
    for_each_part(sections, [&](std::string_view, std::string_view json) {
        const Json section = Json::parse(json);
        auto kind = std::find_if(list.begin(), list.end(),
                                 [&](const Json &row) { return row[0] == section["name"]; });
        if (kind == list.end()) {
            list.push_back({section["name"], 0, 0, 0});
            kind = list.end() - 1;
        }
        (*kind)[1] = (*kind)[1].get<uint64_t>() + 1;
        (*kind)[2] = (*kind)[2].get<uint64_t>() + section["stored"].get<uint64_t>();
        (*kind)[3] = (*kind)[3].get<uint64_t>() + section["raw"].get<uint64_t>();
    });
    return list;
}

// Writes sampling settings. Seeds become texts, because a script's numbers have 53 bits.
void write_samplings(std::string_view samplings, const Out &out) {
    List list(out);
    for_each_part(samplings, [&](std::string_view, std::string_view sampling) {
        std::string item;
        for_each_part(sampling, [&](std::string_view key, std::string_view value) {
            const char *quote = key == "seed" ? "\"" : "";
            item += (item.empty() ? "{\"" : ",\"") + std::string(key) + "\":";
            item += quote + std::string(value) + quote;
        });
        list.add(item + "}");
    });
    list.end();
}

// Writes an element without the members that are written elsewhere; spans as their number.
void write_element(uint32_t element, std::string_view json, const Out &out) {
    bool first = true;
    for_each_part(json, [&](std::string_view key, std::string_view value) {
        const bool elsewhere = (element == kKvCache && key == "pages") ||
                               (element == kTokenBuffer && (key == "texts" || key == "text")) ||
                               (element == kFormat && key == "sections");
        if (elsewhere) {
            return;
        }
        out((first ? "{\"" : ",\"") + std::string(key) + "\":");
        first = false;
        if (element == kPromptMeta && key == "spans") {
            size_t count = 0;
            for_each_part(value, [&](std::string_view, std::string_view) { ++count; });
            out(std::to_string(count));
        } else if (element == kConfig && key == "samplings") {
            write_samplings(value, out);
        } else {
            out(value);
        }
    });
    out("}");
}

std::vector<stasis_token> tokens(const Shown &shown) {
    return fetch<stasis_token>(
        [&](stasis_token *ids, size_t capacity, size_t *count, stasis_error *error) {
            return stasis_snapshot_tokens(shown.snapshot.get(), 0, ids, nullptr, capacity, count,
                                          error);
        },
        shown.path);
}

void write_session(const Shown &shown, const Out &out) {
    const auto element = [&](uint32_t wanted) {
        return wanted == kFormat ? shown.format
                                 : snapshot_element_text(shown.snapshot.get(), wanted);
    };
    const stasis_snapshot_info info = snapshot_info(shown.snapshot.get(), shown.path);
    warn_if_older(info, shown.path);
    std::string head = dump({{"name", std::filesystem::path(shown.path).filename().string()},
                             {"file_bytes", info.file_bytes},
                             {"older", info.older != 0},
                             {"position", info.position},
                             {"page_positions", info.page_positions},
                             {"digest", hex(info.digest)},
                             {"root", shown.root},
                             {"model", hex(info.model)}});
    head.back() = ',';
    out(head + "\"tokens\":[" + join_tokens(tokens(shown)) + "],\"texts\":");
    write_texts(member(element(kTokenBuffer), "texts"), out);
    out(",\"spans\":"); // begin, end, source, role, turn_start, sampling
    write_short(member(element(kPromptMeta), "spans"), 6, out);

    const std::string_view sections = member(shown.format, "sections");
    out(",\"pages\":");
    write_pages(member(element(kKvCache), "pages"), sections, out);
    out(",\"sections\":" + dump(sums(sections)) + ",\"elements\":[");
    for (uint32_t wanted = 1; wanted <= kElements; ++wanted) {
        out(wanted == 1 ? "" : ",");
        write_element(wanted, element(wanted), out);
    }
    out("]}");
}

} // namespace

Shown open_shown(const std::string &path) {
    return shown_of(path, open_snapshot(path));
}

Shown shown_of(const std::string &path, Snapshot snapshot) {
    Shown shown{path, std::move(snapshot), "", ""};
    shown.root = hex(snapshot_info(shown.snapshot.get(), path).root);
    shown.format = snapshot_element_text(shown.snapshot.get(), kFormat);
    return shown;
}

std::string difference_of(const Shown &shown, const Shown &other) {
    auto difference = sized<stasis_difference>();
    stasis_error error{};
    check(stasis_snapshot_compare(shown.snapshot.get(), other.snapshot.get(), &difference, &error),
          error, other.path);
    const bool equal = difference.equal != 0;
    return dump({{"equal", equal}, {"message", equal ? "" : difference.message}});
}

void write_data(const Shown &shown, const Shown *other, const std::string &difference,
                const Out &out) {
    out("{\"session\":");
    write_session(shown, out);
    out(",\"other\":");
    if (other != nullptr) {
        write_session(*other, out);
    } else {
        out("null");
    }
    out(",\"difference\":" + (other != nullptr ? difference : "null") + "}");
}

} // namespace command::report
