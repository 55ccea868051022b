// Golden files of recurrent layers, experts, layers that differ in their heads or share keys and
// values, and data of hosts, of made-up states: every later build reads them as what they were made
// of, and commits to copies of them. They stay as they are; this shows where they came from:
//   test_format --no-skip --test-case='*golden files that are missing are made'
#include <doctest/doctest.h>

#include <filesystem>

#include "format/manifest.h"
#include "format/reader.h"
#include "format/state/json_writer.h"
#include "format/writer.h"
#include "sample.h"
#include "tests/data_files.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// Under version 1 of each part of the contract.
State golden_state(const Shape &shape) {
    State state = sample_state(shape);
    state.contract = {1, 1, 1, shape.checkpoints != 0 ? 1U : 0U, 0};
    state.samplings[1].presence_penalty = 0.5F; // the command shows a denormal as 0
    state.samplings[1].bias.clear();
    seal(state);
    return state;
}

State hybrid_at(uint64_t position, uint64_t checkpoints = 30) {
    return golden_state({.position = position, .layers = 5, .checkpoints = checkpoints});
}

State uneven_at(uint64_t position, uint64_t checkpoints = 0) {
    return golden_state({.position = position,
                         .layers = checkpoints != 0 ? 7U : 5U,
                         .checkpoints = checkpoints,
                         .uneven = true});
}

State experts_state() {
    State state = hybrid_at(40, 0);
    state.contract.experts = 1;
    seal(state);
    return state;
}

// After a commit that keeps one value, changes another and has a third no more.
State kept_at(uint64_t position) {
    State state = with_data(golden_state({.position = position, .layers = 2}), 300);
    if (position == 70) {
        state.host_data = with_value(state.host_data, "a title", std::vector<uint8_t>{7, 8});
        state.host_data = with_value(state.host_data, "gone", std::vector<uint8_t>{9});
    }
    return state;
}

State later_uneven() {
    return uneven_at(120);
}

std::string golden_path(const std::string &folder, const std::string &name) {
    return test_data("golden/" + folder + "/" + name);
}

void save_stream(const State &state, const std::string &path) {
    Bytes bytes;
    const Sink sink{&bytes, [](void *user, const void *data, size_t size_bytes) {
                        const auto *from = static_cast<const uint8_t *>(data);
                        auto *to = static_cast<Bytes *>(user);
                        to->insert(to->end(), from, from + size_bytes);
                    }};
    write_stream(state, sink, {});
    write_bytes(path, bytes);
}

struct Golden {
    const char *folder, *name;
    State (*state)();
    void (*make)(const std::string &path);
    State (*later)() = [] { return hybrid_at(120); }; // what may be committed to it

    std::string path() const { return golden_path(folder, name); }
};

const Golden kGolden[] = {
    {"recurrent", "commits.stasis", [] { return hybrid_at(95); },
     [](const std::string &path) {
         for (const uint64_t position : {70, 100, 95}) {
             save(hybrid_at(position), path, {});
         }
     }},
    {"recurrent", "zstd.stasis", [] { return hybrid_at(70); },
     [](const std::string &path) { save(hybrid_at(70), path, {.codec = Codec::zstd}); }},
    {"recurrent", "none.stasis", [] { return hybrid_at(70); },
     [](const std::string &path) { save(hybrid_at(70), path, {.keep = Keep::none}); }},
    {"recurrent", "stream.stasis", [] { return hybrid_at(31); },
     [](const std::string &path) { save_stream(hybrid_at(31), path); }},
    {"recurrent", "empty.stasis", [] { return hybrid_at(0); },
     [](const std::string &path) { save(hybrid_at(0), path, {}); }},
    {"recurrent", "experts.stasis", experts_state,
     [](const std::string &path) { save(experts_state(), path, {}); }},
    {"layers", "commits.stasis", [] { return uneven_at(95); },
     [](const std::string &path) {
         for (const uint64_t position : {70, 100, 95}) {
             save(uneven_at(position), path, {});
         }
     },
     later_uneven},
    {"layers", "zstd.stasis", [] { return uneven_at(70); },
     [](const std::string &path) { save(uneven_at(70), path, {.codec = Codec::zstd}); },
     later_uneven},
    {"layers", "none.stasis", [] { return uneven_at(70); },
     [](const std::string &path) { save(uneven_at(70), path, {.keep = Keep::none}); },
     later_uneven},
    {"layers", "hybrid.stasis", [] { return uneven_at(70, 30); },
     [](const std::string &path) { save(uneven_at(70, 30), path, {}); },
     [] { return uneven_at(120, 30); }},
    {"data", "commits.stasis", [] { return kept_at(95); },
     [](const std::string &path) {
         for (const uint64_t position : {70, 95}) {
             save(kept_at(position), path, {});
         }
     },
     [] { return kept_at(120); }},
    {"data", "stream.stasis", [] { return kept_at(31); },
     [](const std::string &path) { save_stream(kept_at(31), path); },
     [] { return kept_at(120); }},
};

void record(const Golden &golden, JsonWriter &json) {
    const Bytes bytes = read_bytes(golden.path());
    const auto snapshot = Snapshot::open_input(Input(bytes));
    json.begin_object().field("name", golden.name);
    json.field("sha256", to_hex(Sha256().bytes(bytes.data(), bytes.size()).finish()));
    json.field("position", snapshot->state().log.size());
    json.field("digest", to_hex(snapshot->state().digest));
    json.field("root", to_hex(snapshot->root().digest));
    json.field("features", snapshot->root().features_refuse);
    json.key("states").begin_array();
    for (const RecurrentState &each : snapshot->state().states) {
        json.value(each.position);
    }
    json.end_array().end_object();
}

} // namespace

TEST_CASE("load: golden files of made-up states hold the states that they were made of") {
    for (const Golden &golden : kGolden) {
        CAPTURE(golden.path());
        State made = golden.state();
        const State found = load(golden.path(), {});
        each_session_number([&](const auto &number) { // later builds have more of them
            made.*number.member = found.*number.member;
        });
        CHECK(found.digest == made.digest);
        if (Snapshot::open(golden.path())->keep() == Keep::full) {
            check_same(made, found);
        }
    }
}

// What later builds add is written only where it is used. (A field that all files have from then on
// would leave this to newer golden files.)
TEST_CASE("build_manifest: manifests of golden files of made-up states are written as they were") {
    for (const Golden &golden : kGolden) {
        CAPTURE(golden.path());
        const Bytes bytes = read_bytes(golden.path());
        const auto snapshot = Snapshot::open_input(Input(bytes));
        const auto begin =
            bytes.begin() + static_cast<ptrdiff_t>(snapshot->root().manifest_offset + kFrameBytes);
        const auto size = static_cast<ptrdiff_t>(snapshot->root().manifest_bytes);
        CHECK(build_manifest(snapshot->state(), snapshot->layout()) == Bytes(begin, begin + size));
    }
}

TEST_CASE("save: copies of golden files of made-up states take commits and are compacted") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    for (const Golden &golden : kGolden) {
        CAPTURE(golden.path());
        write_bytes(path, read_bytes(golden.path()));
        const uint64_t commits = Snapshot::open(path)->root().sequence;
        save(golden.later(), path, {});
        check_same(golden.later(), load(path, {}));
        CHECK(Snapshot::open(path)->root().sequence == commits + 1);
        compact(path, {.codec = Codec::zstd});
        check_same(golden.later(), load(path, {}));
    }
}

TEST_CASE("save: golden files that are missing are made" * doctest::skip()) {
    for (const std::string folder : {"recurrent", "layers", "data"}) {
        if (std::filesystem::exists(golden_path(folder, ""))) {
            continue; // they are never made anew
        }
        std::filesystem::create_directories(golden_path(folder, ""));
        JsonWriter json;
        json.begin_array();
        for (const Golden &golden : kGolden) {
            if (golden.folder == folder) {
                golden.make(golden.path());
                record(golden, json);
            }
        }
        const std::string text = json.end_array().text() + "\n";
        write_bytes(golden_path(folder, "golden.json"), Bytes(text.begin(), text.end()));
    }
}
