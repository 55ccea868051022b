// Recurrent states in files: what is saved is what is loaded, commits share what stays, and no
// state is read that is not the one that was written.
#include "format/recurrent.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "format/compare.h"
#include "format/dead.h"
#include "format/element_json.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// Two pieces of a digest and three frames of a codec.
constexpr Shape kLargeHybrid{.position = 70, .layers = 3, .checkpoints = 32, .value_dim = 256};

State hybrid(uint64_t position, uint64_t seed = 1, uint64_t common = 0) {
    return sample_state(kHybrid, position, seed, common);
}

std::shared_ptr<const Snapshot> opened_recurrent(const Bytes &bytes) {
    return Snapshot::open_input(Input(bytes));
}

std::vector<uint64_t> positions(const Snapshot &snapshot) {
    std::vector<uint64_t> found;
    for (const RecurrentState &each : snapshot.state().states) {
        found.push_back(each.position);
    }
    return found;
}

std::vector<Codec> codecs(const Snapshot &snapshot) {
    std::vector<Codec> found;
    for (const Section &section : snapshot.sections()) {
        if (section.frame.kind == SectionKind::recurrent) {
            found.push_back(section.frame.codec);
        }
    }
    return found;
}

// A thread for each call.
Parallel any_threads() {
    return {nullptr, [](void *, size_t count, void (*work)(void *, size_t), void *data) {
                for (size_t i = count; i-- > 0;) { // any order
                    work(data, i);
                }
            }};
}

} // namespace

TEST_CASE("save: recurrent states survive the file bit for bit, raw and coded") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    for (Shape shape : {kHybrid, kLargeHybrid}) {
        for (const Codec codec : {Codec::raw, Codec::zstd}) {
            for (const uint64_t position :
                 {uint64_t{0}, uint64_t{1}, uint64_t{30}, shape.position}) {
                shape.position = position;
                const State state = sample_state(shape);
                save(state, path, {.replace = true, .codec = codec, .parallel = any_threads()});
                check_same(state, load(path, {}));
                check_same(state, load(path, {}, system_files(), any_threads()));
                const auto snapshot = Snapshot::open(path);
                CHECK(snapshot->root().features_refuse == kFeatureRecurrent);
                CHECK(snapshot->state().contract.recurrent == 7);
                for (const Codec each : codecs(*snapshot)) {
                    CHECK(each == codec);
                }
                CHECK(check_all_sections(*snapshot, {}) == snapshot->sections().size());
                CHECK(dead_bytes(*snapshot) == 0);
            }
        }
    }
}

TEST_CASE("save: zeros, signs of zeros and denormals of a recurrent state are kept as they are") {
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        State state = hybrid(20);
        auto *numbers = const_cast<float *>(state.states[0].data);
        std::fill_n(numbers, state.recurrent.numbers(), 0.0F);
        numbers[3] = -0.0F;
        numbers[5] = std::bit_cast<float>(0x80000001U);
        seal(state);
        const Bytes bytes = saved(state, {.codec = codec});
        const auto snapshot = opened_recurrent(bytes);
        std::vector<float> read(state.recurrent.numbers());
        snapshot->read_state(0, read.data());
        CHECK(std::memcmp(read.data(), numbers, read.size() * sizeof(float)) == 0);
    }
}

TEST_CASE("save: a state with neither recurrent layers nor experts is written as ever") {
    const auto snapshot = opened_recurrent(saved(sample_state({})));
    CHECK(snapshot->root().features_refuse == 0);
    CHECK(element_text(*snapshot, 1).find("recurrent") == std::string::npos);
    CHECK(element_text(*snapshot, 11).find("recurrent") == std::string::npos);
}

TEST_CASE("save: a contract for experts needs a feature, and layers need none") {
    State state = sample_state({});
    state.contract.experts = 3;
    seal(state);
    const Bytes bytes = saved(state);
    const auto snapshot = opened_recurrent(bytes);
    CHECK(snapshot->root().features_refuse == kFeatureExperts);
    CHECK(snapshot->state().contract == state.contract);
    CHECK(element_text(*snapshot, 11).find(R"("sampling":6,"experts":3})") != std::string::npos);
    for (const uint64_t features : {uint64_t{0}, kFeatureExperts | kFeatureRecurrent}) {
        Root root = snapshot->root();
        root.features_refuse = features;
        check_refused("the root's features and the manifest disagree",
                      with_root(bytes, root, kSlotA));
    }
}

TEST_CASE("save: commits refer to states that stay, write new ones and forget dropped ones") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    std::shared_ptr<const Contents> known;
    for (const bool remember : {false, true}) {
        CAPTURE(remember);
        std::remove(path.c_str());
        const auto commit = [&](const State &state) {
            known = save(state, path, {.known = remember ? known : nullptr});
            check_same(state, load(path, {}));
            return Snapshot::open(path);
        };
        const auto first = commit(hybrid(70));
        CHECK(positions(*first) == std::vector<uint64_t>{30, 60, 70});
        const std::vector<StateRef> before = first->layout().states;
        const auto grown = commit(hybrid(100));
        CHECK(positions(*grown) == std::vector<uint64_t>{30, 60, 90, 100});
        const std::vector<StateRef> after = grown->layout().states;
        CHECK(after[0] == before[0]);
        CHECK(after[1] == before[1]);
        CHECK(after[2].offset >= first->file_bytes());
        const uint64_t one = section_bytes(state_bytes(grown->state()));
        CHECK(dead_bytes(*grown) >= one); // the state at 70

        State dropped = hybrid(100);
        dropped.states.erase(dropped.states.begin(), dropped.states.begin() + 2);
        dropped.digest = state_digest(dropped);
        CHECK(dropped.digest == hybrid(100).digest);
        const auto fewer = commit(dropped);
        CHECK(fewer->file_bytes() - grown->file_bytes() < 2 * one);
        CHECK(positions(*fewer) == std::vector<uint64_t>{90, 100});
        CHECK(dead_bytes(*fewer) >= dead_bytes(*grown) + 2 * one);

        // A rewind to a checkpoint, which the file no longer names, and another course from there.
        const auto forked = commit(hybrid(95, 2, 60));
        CHECK(positions(*forked) == std::vector<uint64_t>{30, 60, 90, 95});
        CHECK(forked->layout().states[2].offset >= fewer->file_bytes());
        CHECK(forked->layout().states[0].offset >= fewer->file_bytes());
        compact(path, {});
        check_same(hybrid(95, 2, 60), load(path, {}));
        CHECK(dead_bytes(*Snapshot::open(path)) == 0);
        known = nullptr;
    }
}

TEST_CASE("check_all_sections: a flipped byte of a state that is no longer named is found") {
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        const ScratchFolder folder;
        const std::string path = folder.path("s");
        save(hybrid(70), path, {.codec = codec});
        const StateRef dead = Snapshot::open(path)->layout().states.back();
        save(hybrid(75), path, {.codec = codec});
        Bytes bytes = read_bytes(path);
        CHECK(check_all_sections(*opened_recurrent(bytes), {}) > 0);
        for (uint64_t at = 0; at < dead.stored_bytes; at += 3) {
            bytes[dead.offset + kFrameBytes + at] ^= 0x10;
            const auto snapshot = opened_recurrent(bytes); // the state does not reach it
            CHECK_THROWS_WITH_AS(check_all_sections(*snapshot, {}),
                                 doctest::Contains("its bytes do not give its checksum"), Error);
            bytes[dead.offset + kFrameBytes + at] ^= 0x10;
        }
    }
}

TEST_CASE("save: a file that keeps no numbers has the digests of states, and may get them again") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = hybrid(100);
    save(state, path, {.keep = Keep::none});
    const auto none = Snapshot::open(path);
    CHECK(codecs(*none).empty());
    CHECK(none->state().digest == state.digest);
    CHECK(positions(*none) == std::vector<uint64_t>{30, 60, 90, 100});
    CHECK(none->state().states[1].digest == state.states[1].digest);
    CHECK(load(path, {}).states[0].data == nullptr);
    compact(path, {.codec = Codec::zstd});
    CHECK(Snapshot::open(path)->state().states.size() == 4);
    save(state, path, {});
    check_same(state, load(path, {}));
    save(state, path, {.keep = Keep::none});
    CHECK(codecs(*Snapshot::open(path)).empty());
}

TEST_CASE("compact: recurrent states are written anew, under the codec that was asked for") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = sample_state(kLargeHybrid);
    save(state, path, {});
    const uint64_t raw = Snapshot::open(path)->file_bytes();
    compact(path, {.codec = Codec::zstd, .parallel = any_threads()});
    check_same(state, load(path, {}));
    const auto coded = Snapshot::open(path);
    CHECK(codecs(*coded) == std::vector<Codec>(3, Codec::zstd));
    CHECK(coded->file_bytes() < raw * 9 / 10);
    compact(path, {});
    CHECK(Snapshot::open(path)->file_bytes() == raw);
}

TEST_CASE("write_stream: recurrent states are in the stream form, and progress counts them") {
    struct Progress {
        uint64_t done = 0, total = 0;
    } progress;
    Bytes bytes;
    const State state = hybrid(100);
    const Sink sink{&bytes, [](void *user, const void *data, size_t size_bytes) {
                        auto *to = static_cast<Bytes *>(user);
                        const auto *from = static_cast<const uint8_t *>(data);
                        to->insert(to->end(), from, from + size_bytes);
                    }};
    Watch watch;
    watch.user = &progress;
    watch.progress = [](void *user, uint64_t done, uint64_t total) {
        *static_cast<Progress *>(user) = {done, total};
        return true;
    };
    write_stream(state, sink, {.watch = watch});
    const auto snapshot = opened_recurrent(bytes);
    State read = snapshot->state();
    snapshot->read_pages(read, {});
    snapshot->read_states(read, {});
    check_same(state, read);
    CHECK(progress.done == progress.total);
    CHECK(progress.total > 4 * state_bytes(state));
}

TEST_CASE("compare: the first state that differs is named, with its layer and both numbers") {
    const State state = hybrid(100);
    const auto changed = [&](size_t index, size_t at) {
        State other = hybrid(100);
        auto *numbers = const_cast<float *>(other.states[index].data);
        numbers[at] = std::bit_cast<float>(std::bit_cast<uint32_t>(numbers[at]) ^ 1);
        seal(other);
        return other;
    };
    const auto difference = [&](const State &other, SaveOptions options = {}) {
        const Bytes a = saved(state), b = saved(other, options);
        return compare(*opened_recurrent(a), *opened_recurrent(b), {});
    };
    CHECK(difference(state).equal);
    const uint64_t layer = state.recurrent.state_size();
    Difference found = difference(changed(1, layer + 2));
    CHECK(found.element == 1);
    CHECK(found.position == 59);
    CHECK(found.layer == 2);
    CHECK(found.message.find("recurrent states after 60 tokens differ, inputs: f32 bits") !=
          std::string::npos);
    found = difference(changed(3, 2 * layer + state.recurrent.inputs_size() + 15));
    CHECK(found.position == 99);
    CHECK(found.layer == 4);
    CHECK(found.message.find("S of value head 1: f32 bits") != std::string::npos);
    found = difference(changed(3, 0), {.keep = Keep::none});
    CHECK(found.position == 99);
    CHECK(found.message.find("told by their digests") != std::string::npos);

    State fewer = hybrid(100); // which checkpoints there are is no difference
    fewer.states.erase(fewer.states.begin());
    CHECK(difference(fewer).equal);
    State other = hybrid(100);
    other.recurrent.taps = 3;
    seal(other);
    CHECK(difference(other).message.find("recurrent layers differ") != std::string::npos);
    other = hybrid(100);
    other.contract.recurrent = 8;
    seal(other);
    CHECK(difference(other).message.find("contract of recurrent layers") != std::string::npos);
}

TEST_CASE("element_json: recurrent layers and their states are listed") {
    const auto snapshot = opened_recurrent(saved(hybrid(70)));
    const std::string cache = element_text(*snapshot, 1);
    CHECK(cache.find(R"("recurrent":{"dtype":"f32","layers":[0,2,4],"key_heads":1,"key_dim":3,)"
                     R"("value_heads":2,"value_dim":5,"taps":4,"state_bytes":936,"states":[)"
                     R"({"position":30,"digest":")") != std::string::npos);
    CHECK(cache.find(R"("stored":936},{"position":60,)") != std::string::npos);
    CHECK(element_text(*snapshot, 5).find(R"("layer_windows":[null,0,null,40,null])") !=
          std::string::npos);
    CHECK(element_text(*snapshot, 11).find(R"("sampling":6,"recurrent":7})") != std::string::npos);
    const auto none = opened_recurrent(saved(hybrid(70), {.keep = Keep::none}));
    CHECK(element_text(*none, 1).find(R"("offset":null,"stored":0})") != std::string::npos);
}

TEST_CASE("save: evictions beside recurrent layers are refused") {
    State state = hybrid(100);
    state.evictions.push_back({90, {{10, 20}}, std::vector<uint16_t>(state.hidden_size, 0x3F80)});
    state.digest = state_digest(state);
    try {
        check_recurrent_states(state, Status::corrupt);
        FAIL_CHECK("accepted");
    } catch (const Error &error) {
        CHECK(std::string(error.what()).find("evicted") != std::string::npos);
    }
}
