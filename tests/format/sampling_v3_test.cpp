// Constraints and sets of tokens in a file: what comes back, what of it is canonical, and how older
// builds are kept from misreading it.
#include <doctest/doctest.h>

#include <random>

#include "format/constants.h"
#include "format/manifest.h"
#include "format/reader.h"
#include "format/state/token_set.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

Shared<Constraint> constraint_of(uint32_t kind, std::string text) {
    return {std::make_shared<const Constraint>(Constraint{kind, std::move(text)})};
}

Shared<std::string> set_of(std::string bytes) {
    return {std::make_shared<const std::string>(std::move(bytes))};
}

// Three settings, two of which share a constraint, each by a copy of its own.
State constrained_state() {
    State state = sample_state(kSmall);
    state.samplings.resize(2);
    state.samplings.push_back(state.samplings[0]);
    state.samplings[2].seed = 77;
    state.samplings[0].v3.constraint = constraint_of(3, "[a-z]+");
    state.samplings[1].v3.constraint = constraint_of(1, R"({"type":"object"})");
    state.samplings[1].v3.allowed = set_of(encode_tokens({0, 3, 40, 50}, 50));
    state.samplings[2].v3.constraint = constraint_of(3, "[a-z]+");
    state.sampling = 2;
    return state;
}

std::vector<Sampling> constraints_in(const Bytes &file) {
    return Snapshot::open("memory", memory_files(file))->state().samplings;
}

} // namespace

TEST_CASE("save: constraints and sets of tokens come back, equal constraints as one") {
    const State state = constrained_state();
    CHECK(sampling_version(state.samplings) == 3);
    const Bytes file = saved(state);
    const std::vector<Sampling> found = constraints_in(file);
    CHECK(found == state.samplings);
    CHECK(found[0].v3.constraint.value == found[2].v3.constraint.value);
    CHECK(uses_v2(state.samplings) == ((read_root(file).features_read & kFeatureSamplingV2) != 0));
    CHECK((read_root(file).features_read & kFeatureSamplingV3) != 0);
    const std::string bytes(file.begin(), file.end());
    const size_t at = bytes.find("[a-z]+");
    CHECK(at != std::string::npos);
    CHECK(bytes.find("[a-z]+", at + 1) == std::string::npos);
    // Committed to again without them, a file has nothing of them.
    const ScratchFolder folder;
    save(state, folder.path("s"), {});
    save(sample_state(kSmall), folder.path("s"), {});
    CHECK(Snapshot::open(folder.path("s"))->root().features_read == 0);
    save(state, folder.path("s"), {});
    compact(folder.path("s"), {});
    CHECK(Snapshot::open(folder.path("s"))->state().samplings == state.samplings);
}

TEST_CASE("Snapshot::open: a root that tells otherwise than the constraints is refused") {
    for (const bool used : {false, true}) {
        const Bytes file = saved(used ? constrained_state() : sample_state(kSmall));
        Root root = read_root(file);
        root.features_read ^= kFeatureSamplingV3;
        check_refused(used ? "version 3 are there, which the root does not tell"
                           : "version 3 are missing",
                      with_root(file, root, kSlotA));
    }
}

TEST_CASE("save: constraints out of range are refused, written and read") {
    struct Bad {
        const char *message;
        std::function<void(SamplingV3 &v3)> change;
    };
    const std::vector<Bad> all{
        {"constraint of kind 0", [](SamplingV3 &v3) { v3.constraint = constraint_of(0, "a"); }},
        {"constraint of kind 5", [](SamplingV3 &v3) { v3.constraint = constraint_of(5, "a"); }},
        {"constraint of kind 2", [](SamplingV3 &v3) { v3.constraint = constraint_of(2, "a"); }},
        {"text of 262145 bytes",
         [](SamplingV3 &v3) { v3.constraint = constraint_of(3, std::string(262145, 'a')); }},
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of(""); }},
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of("\x01"); }}, // of no token
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of("\x02\x01\x01"); }},
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of("\x01\x01"); }},     // ends outside
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of("\x01\x28\x0b"); }}, // beyond 50
        {"no set",                                                               // a bit beyond 50
         [](SamplingV3 &v3) { v3.allowed = set_of(std::string("\0UUUUUU\x11", 8)); }},
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of("\x01\x81"); }},
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of(std::string("\x01\x81\x00\x01", 4)); }},
        {"no set",
         [](SamplingV3 &v3) { v3.allowed = set_of(std::string("\x01\x01\x00\x01\x01", 5)); }},
        {"no set", [](SamplingV3 &v3) { v3.allowed = set_of(std::string("\0\3\0\0\0\0\0\0", 8)); }},
    };
    const Bytes file = saved(constrained_state());
    for (const Bad &bad : all) {
        CAPTURE(bad.message);
        State state = constrained_state();
        bad.change(state.samplings[1].v3);
        CHECK_THROWS_WITH_AS(saved(state), doctest::Contains(bad.message), Error);
        check_refused(bad.message, with_settings_in_manifest(file, [&](State &s, Layout &) {
                          bad.change(s.samplings[1].v3);
                      }));
    }
}

TEST_CASE("encode_tokens: sets come back, each has one string, and that is the shorter one") {
    std::mt19937 random(7);
    for (const uint32_t vocabulary : {1U, 7U, 8U, 50U, 64U, 1000U, 49152U}) {
        for (const uint32_t most : {1U, 2U, 30U, 3000U}) { // length of runs
            TokenRuns runs;
            for (uint32_t token = random() % 2; token < vocabulary;) {
                const uint32_t end = std::min<uint32_t>(vocabulary, token + 1 + random() % most);
                runs.push_back(token);
                runs.push_back(end);
                token = end + 1 + random() % most;
            }
            const std::string bytes = encode_tokens(runs, vocabulary);
            CHECK(bytes.size() <= 1 + (vocabulary + 7) / 8);
            const std::optional<TokenRuns> again = decode_tokens(bytes, vocabulary);
            REQUIRE(again.has_value());
            CHECK(*again == runs);
            for (int i = 0; i < 200; ++i) { // whatever else is a set has a string of its own
                std::string other = bytes;
                other[random() % other.size()] ^= static_cast<char>(1U << random() % 8);
                if (random() % 4 == 0) {
                    other.resize(random() % (other.size() + 1));
                }
                const std::optional<TokenRuns> read = decode_tokens(other, vocabulary);
                CHECK((!read || (encode_tokens(*read, vocabulary) == other &&
                                 (other == bytes || *read != runs))));
            }
        }
    }
}
