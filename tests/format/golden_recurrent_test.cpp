// Golden files of recurrent layers and experts, of made-up states: every later build reads them as
// what they were made of, and commits to copies of them. They stay as they are; this shows where
// they came from:
//   test_format --no-skip --test-case='*golden files are made'
#include <doctest/doctest.h>

#include <filesystem>

#include "format/reader.h"
#include "format/state/json_writer.h"
#include "format/writer.h"
#include "sample.h"
#include "tests/data_files.h"

using namespace stasis;
using namespace stasis::format;

namespace {

std::string recurrent_golden(const std::string &name) {
    return test_data("golden/recurrent/" + name);
}

// Under version 1 of each part of the contract.
State golden_state(uint64_t position, uint64_t checkpoints = 30) {
    State state = sample_state({.position = position, .layers = 5, .checkpoints = checkpoints});
    state.contract = {1, 1, 1, checkpoints != 0 ? 1U : 0U, 0};
    state.samplings[1].presence_penalty = 0.5F; // the command shows a denormal as 0
    state.samplings[1].bias.clear();
    seal(state);
    return state;
}

State experts_state() {
    State state = golden_state(40, 0);
    state.contract.experts = 1;
    seal(state);
    return state;
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
    const char *name;
    State (*state)();
    void (*make)(const std::string &path);
};

const Golden kGoldenRecurrent[] = {
    {"commits.stasis", [] { return golden_state(95); },
     [](const std::string &path) {
         for (const uint64_t position : {70, 100, 95}) {
             save(golden_state(position), path, {});
         }
     }},
    {"zstd.stasis", [] { return golden_state(70); },
     [](const std::string &path) { save(golden_state(70), path, {.codec = Codec::zstd}); }},
    {"none.stasis", [] { return golden_state(70); },
     [](const std::string &path) { save(golden_state(70), path, {.keep = Keep::none}); }},
    {"stream.stasis", [] { return golden_state(31); },
     [](const std::string &path) { save_stream(golden_state(31), path); }},
    {"empty.stasis", [] { return golden_state(0); },
     [](const std::string &path) { save(golden_state(0), path, {}); }},
    {"experts.stasis", experts_state,
     [](const std::string &path) { save(experts_state(), path, {}); }},
};

void record(const std::string &name, JsonWriter &json) {
    const Bytes bytes = read_bytes(recurrent_golden(name));
    const auto snapshot = Snapshot::open_input(Input(bytes));
    json.begin_object().field("name", name);
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

TEST_CASE("load: golden files of recurrent layers hold the states that they were made of") {
    for (const Golden &golden : kGoldenRecurrent) {
        CAPTURE(std::string(golden.name));
        State made = golden.state();
        const State found = load(recurrent_golden(golden.name), {});
        each_session_number([&](const auto &number) { // later builds have more of them
            made.*number.member = found.*number.member;
        });
        CHECK(found.digest == made.digest);
        if (found.states.empty() || found.states[0].data != nullptr) { // not of `none`
            check_same(made, found);
        }
    }
}

TEST_CASE("save: copies of golden files of recurrent layers take commits and are compacted") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    for (const Golden &golden : kGoldenRecurrent) {
        CAPTURE(std::string(golden.name));
        write_bytes(path, read_bytes(recurrent_golden(golden.name)));
        const uint64_t commits = Snapshot::open(path)->root().sequence;
        save(golden_state(120), path, {});
        check_same(golden_state(120), load(path, {}));
        CHECK(Snapshot::open(path)->root().sequence == commits + 1);
        compact(path, {.codec = Codec::zstd});
        check_same(golden_state(120), load(path, {}));
    }
}

TEST_CASE("save: golden files are made" * doctest::skip()) {
    REQUIRE_MESSAGE(!std::filesystem::exists(recurrent_golden("")), "they are never made anew");
    std::filesystem::create_directories(recurrent_golden(""));
    JsonWriter json;
    json.begin_array();
    for (const Golden &golden : kGoldenRecurrent) {
        golden.make(recurrent_golden(golden.name));
        record(golden.name, json);
    }
    const std::string text = json.end_array().text() + "\n";
    write_bytes(recurrent_golden("golden.json"), Bytes(text.begin(), text.end()));
}
