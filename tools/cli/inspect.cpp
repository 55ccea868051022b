// stasis inspect: the contents of a snapshot file, without its model: the Big 8 + 4, the origins of
// its tokens, and the places of its sections. Shows what the library reports and interprets none of
// it.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/json_parts.h"
#include "tools/cli/model.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

constexpr uint32_t kElements = 12, kTokenBuffer = 4, kFormat = 11, kPromptMeta = 12;
constexpr size_t kColumns = 100, kRowsMax = 40;
constexpr size_t kLineMax = 60, kListMax = 4, kMembersMax = 256;

struct InspectChoice {
    std::string path;
    bool json = false;
};

double ratio(const stasis_snapshot_info &info) {
    return static_cast<double>(info.kv_stored_bytes) / static_cast<double>(info.kv_bytes);
}

Json file_json(const stasis_snapshot_info &info) {
    return {{"bytes", info.file_bytes},
            {"commits", info.commits},
            {"keep", keep_name(info.keep)},
            {"codec", codec_name(info.codec)},
            {"kv_bytes", info.kv_bytes},
            {"kv_stored_bytes", info.kv_stored_bytes},
            {"kv_ratio", info.kv_bytes > 0 ? Json(ratio(info)) : Json()},
            {"dead_bytes", info.dead_bytes},
            {"root_damaged", (info.flags & STASIS_SNAPSHOT_DAMAGED_ROOT) != 0},
            {"older", info.older != 0}};
}

std::string file_text(const stasis_snapshot_info &info) {
    std::string text = "  file    " + std::to_string(info.file_bytes) + " bytes of " +
                       std::to_string(info.commits) +
                       (info.commits == 1 ? " commit; " : " commits; ");
    char line[160];
    if (info.keep == STASIS_KEEP_NONE) {
        std::snprintf(line, sizeof line,
                      "keys and values are not kept: a resume computes them again\n");
    } else if (info.kv_bytes == 0) {
        std::snprintf(line, sizeof line, "no keys and values yet\n");
    } else {
        std::snprintf(line, sizeof line,
                      "%llu bytes of keys and values in %llu (%.1f %%, codec %s)\n",
                      static_cast<unsigned long long>(info.kv_bytes),
                      static_cast<unsigned long long>(info.kv_stored_bytes), 100 * ratio(info),
                      codec_name(info.codec));
    }
    text += line;
    text += "  dead    " + std::to_string(info.dead_bytes) +
            " bytes that the state does not refer to\n";
    if (info.older != 0) {
        text +=
            "  DAMAGED the root of the last commit cannot be read: this is the state before it\n";
    } else if ((info.flags & STASIS_SNAPSHOT_DAMAGED_ROOT) != 0) {
        text += "  torn    a root slot cannot be read; nothing is lost: a crash tore it before its "
                "commit was done,\n          or it is of a commit before this one\n";
    }
    return text;
}

// Returns names and sizes of a host's data, as JSON.
std::string data_text(const Snapshot &snapshot, const std::string &path) {
    size_t count = 0;
    stasis_error error;
    const auto list = [&](stasis_data_entry *entries) {
        return stasis_snapshot_list_data(snapshot.get(), entries, sizeof *entries, count, &count,
                                         &error);
    };
    if (const stasis_status status = list(nullptr); status != STASIS_BUFFER_TOO_SMALL) {
        check(status, error, path);
    }
    std::vector<stasis_data_entry> entries(count);
    check(list(entries.data()), error, path);
    Json data = Json::array();
    for (const stasis_data_entry &entry : entries) {
        data.push_back({{"name", entry.name}, {"bytes", entry.bytes}});
    }
    return data.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Prints one object. At most one element is in memory at a time, since elements may be many times
// as long as the file.
void print_json_of(const InspectChoice &choice, const Snapshot &snapshot,
                   const stasis_snapshot_info &info) {
    const std::string format = snapshot_element_text(snapshot.get(), kFormat); // reads on demand
    std::string head = Json{
        {"format", info.format},
        {"contract", contract_text(info.contract)},
        {"profile", info.profile[0] == '\0' ? Json() : Json(info.profile)},
        {"positions_foreign", info.positions_foreign},
        {"position", info.position},
        {"digest", hex(info.digest)},
        {"root",
         hex(info.root)}}.dump();
    head.back() = ',';
    print(head + "\"elements\":");
    for (uint32_t element = 1; element <= kElements; ++element) {
        print((element == 1 ? "{\"" : ",\"") + std::string(element_name(element)) + "\":");
        print(element == kFormat ? format : snapshot_element_text(snapshot.get(), element));
    }
    print("},\"spans\":");
    print(member(snapshot_element_text(snapshot.get(), kPromptMeta), "spans"));
    print(",\"sections\":");
    print(member(format, "sections"));
    print(",\"data\":" + visible(data_text(snapshot, choice.path)));
    print(",\"text\":");
    print(member(snapshot_element_text(snapshot.get(), kTokenBuffer), "text"));
    print(",\"file\":" + file_json(info).dump() + "}\n");
}

// Returns the number of characters, not bytes: close enough to the columns on a terminal.
size_t width_of(const std::string &text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

std::string of_them(size_t count) {
    return "(" + std::to_string(count) + " of them)";
}

// Returns a value in the form that a terminal shows: long lists as their size, the first members of
// objects, and no member that is named in `without`.
Json outline(std::string_view json, std::initializer_list<std::string_view> without = {}) {
    size_t count = 0;
    if (json.front() == '{') {
        Json object = Json::object();
        for_each_part(json, [&](std::string_view key, std::string_view value) {
            const bool wanted = std::find(without.begin(), without.end(), key) == without.end();
            if (wanted && ++count <= kMembersMax) {
                object[std::string(key)] = outline(value);
            }
        });
        if (count > kMembersMax) {
            object["..."] = "and " + std::to_string(count - kMembersMax) + " more (--json)";
        }
        return object;
    }
    if (json.front() != '[') {
        return Json::parse(json);
    }
    for_each_part(json, [&](std::string_view, std::string_view) { ++count; });
    if (count > kListMax && json.size() > kLineMax) {
        return of_them(count);
    }
    Json list = Json::array();
    for_each_part(json,
                  [&](std::string_view, std::string_view item) { list.push_back(outline(item)); });
    return list;
}

// Returns a leaf on one line; long digests and texts are cut.
std::string leaf(const Json &value) {
    constexpr size_t kDigestMin = 32, kDigestShown = 12, kTextMax = 40;
    if (!value.is_string()) {
        return value.dump();
    }
    const std::string text = visible(value.get_ref<const std::string &>());
    if (text.size() >= kDigestMin &&
        text.find_first_not_of("0123456789abcdef") == std::string::npos) {
        return text.substr(0, kDigestShown) + "...";
    }
    std::string line;
    for (const char byte : text) {
        const bool begins = (byte & 0xC0) != 0x80;
        if (begins && width_of(line) >= kTextMax) {
            return line + "...";
        }
        line += byte;
    }
    return line;
}

// Returns a value on one line; a list that is too long for it as its size.
std::string brief(const Json &value) {
    if (value == "") {
        return "none";
    }
    const std::string text = value.is_structured() ? visible(value.dump()) : leaf(value);
    return value.is_array() && text.size() > kLineMax ? of_them(value.size()) : text;
}

// Splits an object into paragraphs of words "key value": its own first, then one for each object in
// it.
void collect(const std::string &title, const Json &object,
             std::vector<std::vector<std::string>> &paragraphs) {
    std::vector<std::string> words;
    for (const auto &[key, value] : object.items()) {
        if (!value.is_object() && !(value.is_array() && value.size() <= kListMax &&
                                    !value.empty() && value[0].is_object())) {
            words.push_back(visible(key) + " " + brief(value));
        }
    }
    if (!words.empty()) {
        words[0] = (title.empty() ? "" : title + ": ") + words[0];
        paragraphs.push_back(words);
    }
    for (const auto &[key, value] : object.items()) {
        if (value.is_object()) {
            collect(visible(key), value, paragraphs);
        } else if (value.is_array() && value.size() <= kListMax) {
            for (size_t i = 0; i < value.size() && value[i].is_object(); ++i) {
                collect(visible(key) + " " + std::to_string(i), value[i], paragraphs);
            }
        }
    }
}

void print_element(uint32_t number, const char *name, std::string_view element) {
    constexpr size_t kIndent = 28;
    // Left out are members that the line begins with, that tables show below, or that are too long.
    const Json shown =
        outline(element, {"element", "name", "spans", "sections", "text", "texts", "pages"});
    // Break the paragraphs into lines.
    std::vector<std::vector<std::string>> paragraphs;
    collect("", shown, paragraphs);
    std::string line = (number < 10 ? "   " : "  ") + std::to_string(number) + "  " + name;
    line.resize(std::max(kIndent, line.size() + 1), ' ');

    for (const std::vector<std::string> &words : paragraphs) {
        for (size_t i = 0; i < words.size(); ++i) {
            const std::string word = words[i] + (i + 1 < words.size() ? ";" : "");
            if (i > 0 && width_of(line) + 1 + width_of(word) > kColumns) {
                print(line + "\n");
                line = std::string(kIndent + 2, ' ') + word;
            } else {
                line += (i > 0 ? " " : "") + word;
            }
        }
        print(line + "\n");
        line = std::string(kIndent, ' ');
    }
}

// Prints a list of objects as a table with a column for each key.
void print_list(const char *title, std::string_view json) {
    Json list = Json::array(); // the rows that are shown
    size_t count = 0;
    for_each_part(json, [&](std::string_view, std::string_view item) {
        if (count++ < kRowsMax) {
            list.push_back(Json::parse(item));
        }
    });
    if (count == 0) {
        return;
    }

    // Columns are the keys of the first object, as wide as their longest value.
    std::vector<std::vector<std::string>> rows(1);
    for (const auto &[key, value] : list[0].items()) {
        rows[0].push_back(key);
    }
    std::vector<size_t> widths;
    for (const std::string &key : rows[0]) {
        widths.push_back(key.size());
    }
    for (size_t i = 0; i < list.size(); ++i) {
        rows.emplace_back();
        for (size_t column = 0; column < widths.size(); ++column) {
            const Json value = list[i].value(rows[0][column], Json());
            rows.back().push_back(value.is_null() ? "" : leaf(value));
            widths[column] = std::max(widths[column], width_of(rows.back().back()));
        }
    }

    print("\n" + std::string(title) + "\n");
    for (const auto &row : rows) {
        std::string line;
        for (size_t column = 0; column < row.size(); ++column) {
            line += "  " + row[column] + std::string(widths[column] - width_of(row[column]), ' ');
        }
        print(line.substr(0, line.find_last_not_of(' ') + 1) + "\n");
    }
    if (count > kRowsMax) {
        print("  ... and " + std::to_string(count - kRowsMax) + " more (--json shows all)\n");
    }
}

// Returns the text indented, so that its lines cannot be mistaken for lines of the command.
std::string indented(const std::string &text) {
    std::string out = "  ";
    for (const char byte : text) {
        out += byte;
        out += byte == '\n' ? "  " : "";
    }
    return out;
}

void print_snapshot(const InspectChoice &choice, const Snapshot &snapshot,
                    const stasis_snapshot_info &info) {
    const auto element_of = [&](uint32_t number) {
        return snapshot_element_text(snapshot.get(), number);
    };
    const std::string format = element_of(kFormat); // reads on demand

    print(visible(choice.path) + ": format " + std::to_string(info.format) + ", contract " +
          contract_text(info.contract) + ", " + std::to_string(info.position) + " positions\n");
    if (info.profile[0] != '\0' || info.positions_foreign != 0) {
        print("  profile " + (info.profile[0] != '\0' ? visible(info.profile) : "contract") +
              (info.positions_foreign == 0
                   ? ""
                   : "; some positions below " + std::to_string(info.positions_foreign) +
                         " were computed under another") +
              "\n");
    }
    print(file_text(info));
    print("  digest  " + hex(info.digest) + "\n  root    " + hex(info.root) + "\n  model   " +
          hex(info.model) + "\n\nelements\n");
    for (uint32_t element = 1; element <= kElements; ++element) {
        print_element(element, element_name(element),
                      element == kFormat ? format : element_of(element));
    }
    print_list("spans", member(element_of(kPromptMeta), "spans"));
    print_list("sections", member(format, "sections"));
    print_list("data", data_text(snapshot, choice.path));
    const auto text = Json::parse(member(element_of(kTokenBuffer), "text")).get<std::string>();
    if (!text.empty()) {
        print("\ntext\n" + indented(text) + "\n");
    }
}

int run_inspect(const InspectChoice &choice) {
    const Snapshot snapshot = open_snapshot(choice.path);
    const stasis_snapshot_info info = snapshot_info(snapshot.get(), choice.path);
    if (choice.json) {
        print_json_of(choice, snapshot, info);
    } else {
        print_snapshot(choice, snapshot, info);
    }
    return 0;
}

} // namespace

void add_inspect(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<InspectChoice>();
    CLI::App *inspect_app =
        app.add_subcommand("inspect", "what a snapshot file holds; needs no model");
    inspect_app->add_option("FILE", choice->path, "a snapshot; -: from standard input")->required();
    inspect_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    inspect_app->callback([=, &exit_code] { exit_code = run_inspect(*choice); });
}

} // namespace command
