// The record of what was computed outside the contract: what is saved is what is loaded, older
// readers refuse it, and what contradicts itself is refused.
#include <doctest/doctest.h>

#include "forgery.h"
#include "format/compare.h"
#include "format/element_json.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const Shape kProfiledShape{.position = 200, .layers = 2};
const Profile kProfile = {"library 1.2 sm_90", {{20, 64, 128}, {84, 100, 512}}, 10};

State profiled(const Profile &profile = kProfile) {
    State state = sample_state(kProfiledShape);
    state.profile = profile;
    state.digest = state_digest(state);
    return state;
}

} // namespace

TEST_CASE("save: what a device profile computed survives the file, and older readers refuse it") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const Profile marked = {"", {}, 200}; // it continues under the contract
    for (const Profile &profile : {kProfile, Profile{"x", {}, 0}, marked}) {
        const State state = profiled(profile);
        save(state, path, {.replace = true});
        check_same(state, load(path, {}));
        CHECK(Snapshot::open(path)->root().features_refuse == kFeatureProfile);
        compact(path, {});
        check_same(state, load(path, {}));
    }
    save(profiled(Profile()), path, {});
    CHECK(Snapshot::open(path)->root().features_refuse == 0);
    CHECK(element_text(*Snapshot::open(path), 11).find(R"("profile":null)") != std::string::npos);
    save(profiled(), path, {});
    CHECK(element_text(*Snapshot::open(path), 11)
              .find(R"("profile":{"id":"library 1.2 sm_90","foreign":10,"chunks":[{"begin":20,)"
                    R"("rows":64,"padded":128},{"begin":84,"rows":100,"padded":512}]})") !=
          std::string::npos);
}

TEST_CASE("save: the id is part of the state's digest, the rest of the record is not") {
    CHECK(profiled().digest != profiled(Profile()).digest);
    CHECK(profiled({"library 1.2 sm_80", {}, 0}).digest != profiled().digest);
    CHECK(profiled({kProfile.id, {}, 0}).digest == profiled().digest);
    CHECK(profiled({"", {}, 7}).digest == sample_state(kProfiledShape).digest);
}

TEST_CASE("save: states that differ in their record are compared by it") {
    const ScratchFolder folder;
    const auto difference = [&](const Profile &a, const Profile &b) {
        save(profiled(a), folder.path("a"), {.replace = true});
        save(profiled(b), folder.path("b"), {.replace = true});
        const Difference found =
            compare(*Snapshot::open(folder.path("a")), *Snapshot::open(folder.path("b")), Watch());
        CHECK((found.equal || found.element == 11));
        return found.message;
    };
    CHECK(difference(kProfile, kProfile) == "");
    CHECK(difference(kProfile, Profile())
              .ends_with("device profile differs: library 1.2 sm_90 and "));
    Profile other = kProfile;
    other.chunks.pop_back();
    CHECK(
        difference(kProfile, other).ends_with("positions computed under a device profile differ"));
}

TEST_CASE("Snapshot::open: forged records are refused") {
    const Bytes file = saved(profiled());
    CHECK(refusal(file) == "");
    const auto refused = [&](const char *why, const std::function<void(Profile &)> &change) {
        check_refused(why, forged(file, [&](State &s, Layout &) { change(s.profile); }));
    };
    refused("chunk of 64 rows of 63", [](Profile &p) { p.chunks[0].padded = 63; });
    refused("chunk of 64 rows of 65537", [](Profile &p) { p.chunks[0].padded = 65537; });
    refused("chunk of 0 rows", [](Profile &p) { p.chunks[0].rows = 0; });
    refused("from position 20 on", [](Profile &p) { p.foreign = 21; });
    refused("in a log of 200", [](Profile &p) { p.chunks[1].rows = 117; });
    refused("from position 4294967379 on", [](Profile &p) { p.chunks[1].begin = 83; }); // -1
    refused("2 chunks without an id", [](Profile &p) { p.id = ""; });
    refused("mark at 201", [](Profile &p) { p.chunks.clear(), p.foreign = 201; });
    refused("its id, of 192 bytes", [](Profile &p) { p.id = std::string(192, 'x'); });
    refused("its id, of 3 bytes", [](Profile &p) { p.id = "a\nb"; });
    refused("state digest is", [](Profile &p) { p.id = "library 1.2 sm_91"; });
    refused("the root's features and the manifest disagree", [](Profile &p) { p = Profile(); });
    Root root = read_root(file);
    root.features_refuse = 0;
    CHECK(refusal(with_root(file, root, kSlotA)).find("the root's features and the manifest") !=
          std::string::npos);
    State evicted = profiled();
    evicted.evictions = {{84, {{0, 1}}, std::vector<uint16_t>(kProfiledShape.hidden_size, 0x3F80)}};
    evicted.digest = state_digest(evicted);
    CHECK(refusal(saved(evicted)) == ""); // between two of them
    evicted.evictions[0].position = 85;
    evicted.digest = state_digest(evicted);
    CHECK_THROWS_WITH_AS(saved(evicted),
                         doctest::Contains("the chunk from position 84 on holds an eviction at 85"),
                         Error);
}
