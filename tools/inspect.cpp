// stasis inspect: what a snapshot file holds, without its model: the Big 8 + 4, whose tokens they
// are, where the bytes lie. Shows what the library reports and interprets none of it.
#include <algorithm>
#include <memory>

#include "tools/commands.h"
#include "tools/model.h"
#include "tools/snapshot.h"
#include "tools/terminal.h"

namespace command {
namespace {

constexpr uint32_t kElements = 12;
constexpr size_t kColumns = 100, kRowsMax = 40;

struct InspectChoice {
    std::string path;
    bool json = false;
};

Json describe(const Snapshot &snapshot, const stasis_snapshot_info &info) {
    Json elements = Json::object();
    for (uint32_t element = 1; element <= kElements; ++element) {
        elements[element_name(element)] = Json::parse(fetch_text(
            [&](char *json, size_t capacity, size_t *length, stasis_error *error) {
                return stasis_snapshot_element(snapshot.get(), element, json, capacity, length,
                                               error);
            },
            element_name(element)));
    }
    const Json spans = elements["prompt_injection_meta"].value("spans", Json::array());
    const Json sections = elements["kv_format_version"].value("sections", Json::array());
    const Json text = elements["input_token_buffer"].value("text", Json());
    return {{"format", info.format},
            {"contract", contract_text(info.contract)},
            {"position", info.position},
            {"digest", hex(info.digest)},
            {"root", hex(info.root)},
            {"elements", elements},
            {"spans", spans},
            {"sections", sections},
            {"text", text}};
}

std::string shown(const std::string &text) {
    const bool digest =
        text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
    return digest ? text.substr(0, 12) + "..." : text;
}

// A value in a few words: lists and objects by their size where they are long.
std::string brief(const Json &value) {
    constexpr size_t kItemsMax = 4;
    if (value.is_string()) {
        return shown(value.get<std::string>());
    }
    if (!value.is_structured()) {
        return value.dump();
    }
    if (value.size() > kItemsMax) {
        return "[" + std::to_string(value.size()) + "]";
    }
    std::string text;
    for (const auto &[key, item] : value.items()) {
        text += text.empty() ? "" : " ";
        text += value.is_object() ? key + " " + brief(item) : brief(item);
    }
    return text;
}

// Words of an element after its name, broken at the terminal's usual width.
void print_element(uint32_t number, const char *name, const Json &element) {
    constexpr size_t kIndent = 28;
    std::string line = (number < 10 ? "   " : "  ") + std::to_string(number) + "  " + name;
    line.resize(std::max(kIndent, line.size() + 1), ' ');
    bool first = true;
    for (const auto &[key, value] : element.items()) {
        if (key == "spans" || key == "sections" || key == "text") {
            continue; // shown below, as tables
        }
        const std::string word = key + " " + brief(value);
        if (!first && line.size() + word.size() + 2 > kColumns) {
            print(line + "\n");
            line = std::string(kIndent, ' ');
        } else if (!first) {
            line += "; ";
        }
        line += word;
        first = false;
    }
    print(line + "\n");
}

// A list of objects, a column for each key.
void print_list(const char *title, const Json &list) {
    if (!list.is_array() || list.empty() || !list[0].is_object()) {
        return;
    }
    std::vector<std::vector<std::string>> rows(1);
    for (const auto &[key, value] : list[0].items()) {
        rows[0].push_back(key);
    }
    for (size_t i = 0; i < std::min(list.size(), kRowsMax); ++i) {
        std::vector<std::string> row;
        for (const std::string &key : rows[0]) {
            row.push_back(brief(list[i].value(key, Json())));
        }
        rows.push_back(row);
    }
    print("\n" + std::string(title) + "\n");
    for (const auto &row : rows) {
        std::string line = " ";
        for (size_t column = 0; column < row.size(); ++column) {
            size_t width = 0;
            for (const auto &other : rows) {
                width = std::max(width, other[column].size());
            }
            line += " " + row[column] + std::string(width - row[column].size() + 1, ' ');
        }
        print(line.substr(0, line.find_last_not_of(' ') + 1) + "\n");
    }
    if (list.size() > kRowsMax) {
        print("  ... and " + std::to_string(list.size() - kRowsMax) + " more\n");
    }
}

void print_snapshot(const InspectChoice &choice, const Json &all,
                    const stasis_snapshot_info &info) {
    print(choice.path + ": format " + std::to_string(info.format) + ", contract " +
          contract_text(info.contract) + ", " + std::to_string(info.position) + " positions, " +
          std::to_string(info.file_bytes) + " bytes\n");
    print("  digest  " + hex(info.digest) + "\n  root    " + hex(info.root) + "\n  model   " +
          hex(info.model) + "\n\nelements\n");
    for (uint32_t element = 1; element <= kElements; ++element) {
        print_element(element, element_name(element), all["elements"][element_name(element)]);
    }
    print_list("spans", all["spans"]);
    print_list("sections", all["sections"]);
    if (all["text"].is_string() && !all["text"].get<std::string>().empty()) {
        print("\ntext\n" + all["text"].get<std::string>() + "\n");
    }
}

int run_inspect(const InspectChoice &choice) {
    const Snapshot snapshot = open_snapshot(choice.path);
    auto info = sized<stasis_snapshot_info>();
    stasis_error error{};
    check(stasis_snapshot_get_info(snapshot.get(), &info, &error), error, choice.path);
    const Json all = describe(snapshot, info);
    if (choice.json) {
        print_json(all);
    } else {
        print_snapshot(choice, all, info);
    }
    return 0;
}

} // namespace

void add_inspect(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<InspectChoice>();
    CLI::App *inspect_app =
        app.add_subcommand("inspect", "what a snapshot file holds; needs no model");
    inspect_app->add_option("FILE", choice->path, "a snapshot")->required();
    inspect_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    inspect_app->callback([=, &exit_code] { exit_code = run_inspect(*choice); });
}

} // namespace command
