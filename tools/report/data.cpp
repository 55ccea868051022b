// Gathers a report's data from snapshots; see data.h.
#include "tools/report/data.h"

#include <filesystem>
#include <map>

#include "tools/model.h"
#include "tools/snapshot.h"

namespace command::report {
namespace {

constexpr uint32_t kElements = 12;
constexpr uint32_t kKvCache = 1, kTokenBuffer = 4, kConfig = 6, kFormat = 11, kPromptMeta = 12;

// [begin, end, source, role, turn_start, sampling] each.
Json short_spans(const Json &spans) {
    Json list = Json::array();
    for (const Json &span : spans) {
        list.push_back({span["begin"], span["end"], span["source"], span["role"],
                        span["turn_start"], span["sampling"]});
    }
    return list;
}

// [token, bytes in hexadecimal] each.
Json short_texts(const Json &texts) {
    Json list = Json::array();
    for (const Json &text : texts) {
        list.push_back({text["token"], text["bytes"]});
    }
    return list;
}

// [group, index, valid slots, bytes, stored bytes, runs, last commit, codec, digest] each; commit
// and codec are those of the last run.
Json short_pages(const Json &pages, const Json &sections) {
    std::map<uint64_t, const Json *> at;
    for (const Json &section : sections) {
        at[section["offset"].get<uint64_t>()] = &section;
    }
    Json list = Json::array();
    for (const Json &page : pages) {
        uint64_t stored = 0;
        Json commit, codec;
        for (const Json &run : page["runs"]) {
            stored += run["stored"].get<uint64_t>();
            const auto section = at.find(run["offset"].get<uint64_t>());
            if (section != at.end()) {
                commit = section->second->at("commit");
                codec = section->second->at("codec");
            }
        }
        list.push_back({page["group"], page["index"], page["valid"], page["bytes"], stored,
                        page["runs"].size(), commit, codec, page["digest"]});
    }
    return list;
}

// Of each kind of section: [name, how many, stored bytes, raw bytes].
Json sums(const Json &sections) {
    Json list = Json::array();
    for (const Json &section : sections) {
        auto kind = std::find_if(list.begin(), list.end(),
                                 [&](const Json &row) { return row[0] == section["name"]; });
        if (kind == list.end()) {
            list.push_back({section["name"], 0, 0, 0});
            kind = list.end() - 1;
        }
        (*kind)[1] = (*kind)[1].get<uint64_t>() + 1;
        (*kind)[2] = (*kind)[2].get<uint64_t>() + section["stored"].get<uint64_t>();
        (*kind)[3] = (*kind)[3].get<uint64_t>() + section["raw"].get<uint64_t>();
    }
    return list;
}

std::vector<stasis_token> tokens(const Snapshot &snapshot, const std::string &path) {
    return fetch<stasis_token>(
        [&](stasis_token *ids, size_t capacity, size_t *count, stasis_error *error) {
            return stasis_snapshot_tokens(snapshot.get(), 0, ids, nullptr, capacity, count, error);
        },
        path);
}

Json describe(const std::string &path, const Snapshot &snapshot) {
    auto info = sized<stasis_snapshot_info>();
    stasis_error error{};
    check(stasis_snapshot_get_info(snapshot.get(), &info, &error), error, path);
    std::map<uint32_t, Json> elements;
    for (uint32_t number = 1; number <= kElements; ++number) {
        elements[number] = snapshot_element(snapshot.get(), number);
    }
    const Json sections = elements[kFormat]["sections"];
    Json json = {{"name", std::filesystem::path(path).filename().string()},
                 {"file_bytes", info.file_bytes},
                 {"position", info.position},
                 {"page_positions", info.page_positions},
                 {"digest", hex(info.digest)},
                 {"root", hex(info.root)},
                 {"model", hex(info.model)},
                 {"tokens", tokens(snapshot, path)},
                 {"texts", short_texts(elements[kTokenBuffer]["texts"])},
                 {"spans", short_spans(elements[kPromptMeta]["spans"])},
                 {"pages", short_pages(elements[kKvCache]["pages"], sections)},
                 {"sections", sums(sections)},
                 {"elements", Json::array()}};
    for (Json &sampling : elements[kConfig]["samplings"]) {
        // A script's numbers have 53 bits.
        sampling["seed"] = std::to_string(sampling["seed"].get<uint64_t>());
    }
    elements[kKvCache].erase("pages");
    elements[kTokenBuffer].erase("texts");
    elements[kTokenBuffer].erase("text");
    elements[kFormat].erase("sections");
    elements[kPromptMeta]["spans"] = json["spans"].size(); // how many
    for (uint32_t number = 1; number <= kElements; ++number) {
        json["elements"].push_back(elements[number]);
    }
    return json;
}

Json compare(const Snapshot &snapshot, const Snapshot &other, const std::string &path) {
    auto difference = sized<stasis_difference>();
    stasis_error error{};
    check(stasis_snapshot_compare(snapshot.get(), other.get(), &difference, &error), error, path);
    const bool equal = difference.equal != 0;
    return {{"equal", equal}, {"message", equal ? "" : difference.message}};
}

} // namespace

Json collect(const std::string &path, const std::string &against) {
    const Snapshot snapshot = open_snapshot(path);
    Json json = {
        {"session", describe(path, snapshot)}, {"other", nullptr}, {"difference", nullptr}};
    if (!against.empty()) {
        const Snapshot other = open_snapshot(against);
        json["other"] = describe(against, other);
        json["difference"] = compare(snapshot, other, against);
    }
    return json;
}

} // namespace command::report
