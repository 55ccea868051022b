// libFuzzer target: small valid files of every kind, edited as the input says and made consistent
// again above each edit, so that they reach the parsers and the checks of contents. A refusal must
// give a reason; a file that opens is used in every way, and must be saved as the same state.
//
// Input: the file to begin with; how it is read and used; edits of seven bytes.
#include <cstdint>
#include <cstring>

#include "format/compare.h"
#include "format/constants.h"
#include "format/element_json.h"
#include "format/reader.h"
#include "format/writer.h"
#include "fuzz_bases.h"
#include "fuzz_edits.h"
#include "tests/fuzz/watched.h"

using namespace stasis;
using namespace stasis::format;
using namespace stasis::fuzz;

namespace {

// Until a file has been found good, a reader may hold this many times its size, and a little more.
constexpr size_t kTimes = 16, kMoreBytes = 64 << 10;

struct Use {
    enum Kind { look, write, compact, commit } kind = look;
    bool stream = false; // read it as the stream form
    bool zstd = false;   // write it so
    bool none = false;   // commit to it without keys and values
    Course course = {};  // what to commit to it

    SaveOptions options(Keep keep, std::span<const float> row = {}) const {
        return {.keep = keep, .codec = zstd ? Codec::zstd : Codec::raw, .logits_row = row};
    }
};

std::shared_ptr<const Snapshot> open_bytes(const Bytes &bytes) {
    return Snapshot::open_input(Input(bytes));
}

// Both ways of reading the same bytes must come to the same.
std::shared_ptr<const Snapshot> open_watched(const Bytes &bytes) {
    struct Rest {
        const Bytes &bytes;
        size_t at = 0;
        static size_t read(void *user, void *data, size_t size_bytes) {
            auto *rest = static_cast<Rest *>(user);
            const size_t count = std::min(size_bytes, rest->bytes.size() - rest->at);
            std::copy_n(rest->bytes.data() + rest->at, count, static_cast<uint8_t *>(data));
            rest->at += count;
            return count;
        }
    } rest{bytes};
    std::shared_ptr<const Snapshot> streamed;
    try {
        const Meter meter(kTimes * bytes.size() + kMoreBytes + (2 << 20)); // it asks for 1 MiB more
        streamed = Snapshot::open_source({&rest, Rest::read});
    } catch (const Error &error) {
        check_refusal(error);
    }
    try {
        const Meter meter(kTimes * bytes.size() + kMoreBytes);
        auto snapshot = Snapshot::open("memory", memory_files(bytes));
        expect(streamed != nullptr, "a file that is refused as a stream");
        expect(streamed->root() == snapshot->root(), "a stream that opens at another root");
        return snapshot;
    } catch (const Error &error) {
        expect(streamed == nullptr, "a stream that is refused as a file");
        throw;
    }
}

void check_same(const Snapshot &a, const Snapshot &b, const char *what) {
    expect(a.state().digest == b.state().digest, what);
    expect(compare(a, b, {}).equal, what);
    const HostData none, &x = a.state().host_data ? *a.state().host_data : none,
                         &y = b.state().host_data ? *b.state().host_data : none;
    expect(std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const auto &one, const auto &other) {
                          return one.first == other.first &&
                                 one.second->bytes == other.second->bytes;
                      }),
           what);
}

// Everything that the file holds, by load's way.
State read_all(const Snapshot &snapshot) {
    State state = snapshot.state();
    snapshot.read_pages(state, {});
    snapshot.read_states(state, {});
    return state;
}

void look(const Snapshot &snapshot, const Bytes &bytes) {
    for (uint32_t element = 1; element <= 12; ++element) {
        std::vector<char> json(element_json(snapshot, element, {}));
        expect(json.size() <= 64 * snapshot.file_bytes() + 65536, "an element that unfolds");
        expect(element_json(snapshot, element, json) == json.size(), "an element of two sizes");
    }
    check_same(snapshot, *open_bytes(bytes), "a file that differs from itself");
    snapshot.sections();
}

// Written anew it is the same.
void write_again(const Snapshot &snapshot, const State &state, const Use &use) {
    Disk disk;
    save(state, kFuzzPath, use.options(snapshot.keep(), snapshot.logits_row()), disk.files());
    const auto saved = open_bytes(disk.contents("s"));
    read_all(*saved);
    check_same(snapshot, *saved, "a state that a save changes");
}

bool may_write(const Snapshot &snapshot) {
    return (snapshot.root().features_read & ~kFeaturesReadKnown) == 0;
}

// A file whose newest root is damaged opens at the commit before it; compacting would make the loss
// final.
bool may_compact(const Snapshot &snapshot) {
    return may_write(snapshot) && !snapshot.older();
}

void compact_it(const Snapshot &snapshot, const Bytes &bytes, const Use &use) {
    Disk disk;
    put_file(disk, bytes);
    try {
        compact(kFuzzPath, use.options(snapshot.keep()), disk.files());
    } catch (const Error &error) {
        expect(!may_compact(snapshot), error.what());
        return;
    }
    expect(may_compact(snapshot), "a file compacted that may not be replaced");
    const auto compacted = open_bytes(disk.contents("s"));
    read_all(*compacted);
    check_same(snapshot, *compacted, "a state that compacting changes");
}

// A commit to it either fails and leaves the state as it was, or is what the file holds then.
void commit_to(const Snapshot &snapshot, const Bytes &bytes, const Use &use) {
    const State state = small_state(use.course);
    Disk disk;
    put_file(disk, bytes);
    bool committed = true;
    try {
        save(state, kFuzzPath, use.options(use.none ? Keep::none : Keep::full), disk.files());
    } catch (const Error &error) {
        expect(error.status() == Status::invalid_argument, error.what());
        committed = false;
    }
    expect(!committed || may_write(snapshot), "a commit to a file only to be read");
    const Bytes &now = disk.contents("s");
    expect(now.size() >= snapshot.file_bytes() &&
               std::equal(now.begin() + kSectionsBegin,
                          now.begin() + static_cast<ptrdiff_t>(snapshot.file_bytes()),
                          bytes.begin() + kSectionsBegin),
           "a commit that changes what was committed before");
    const auto after = open_bytes(now);
    expect(after->state().digest == (committed ? state : snapshot.state()).digest,
           "a commit after which the file holds another state");
    read_all(*after);
}

void use_file(const Bytes &bytes, const Use &use) {
    const auto snapshot = open_watched(bytes);
    const State state = read_all(*snapshot);
    switch (use.kind) {
    case Use::look:
        return look(*snapshot, bytes);
    case Use::write:
        return write_again(*snapshot, state, use);
    case Use::compact:
        return compact_it(*snapshot, bytes, use);
    case Use::commit:
        return commit_to(*snapshot, bytes, use);
    }
}

const std::vector<Bytes> &bases() {
    static const std::vector<Bytes> files = [] {
        const std::vector<float> row(5);
        std::vector<Bytes> made;
        made.push_back(small_file({{33}}, {.logits_row = row}));
        made.push_back(small_file({{33}, {45}, {41}, {43}}, {.codec = Codec::zstd}));
        made.push_back(small_file({{33}, {45}}, {.keep = Keep::none}));
        made.push_back(small_file({{260}, {300, false, true}}, {.codec = Codec::zstd}));
        made.push_back(small_file({{0}}, {}));
        made.push_back(small_file({{70}, {40}, {66, true}}, {}));
        made.push_back(small_file({{70, false, false, true, true}}, {}));
        made.push_back(small_file({{40}, {70, false, false, true}, {80, false, false, true}},
                                  {.codec = Codec::zstd}));
        made.push_back(small_file(
            {{33, false, false, false, false, true}, {45, false, false, false, false, true}},
            {.codec = Codec::zstd}));
        made.push_back(small_file({{40, false, false, false, false, true}}, {}));
        made.push_back(small_file({{40, false, false, false, false, true}}, {.keep = Keep::none}));
        Course uneven{.position = 33, .uneven = true};
        made.push_back(small_file({uneven}, {.codec = Codec::zstd}));
        uneven.hybrid = true;
        made.push_back(small_file({uneven}, {.keep = Keep::none}));
        made.push_back(small_file({{.position = 33, .constrained = true}}, {}));
        made.push_back(small_file({{33}, {.position = 40, .constrained = true}}, {}));
        made.push_back(small_file(
            {{.position = 33, .kept = true}, {.position = 34, .forked = true, .kept = true}}, {}));
        made.push_back( // as builds before there was a tree of settings wrote it
            with_settings_in_manifest(small_file({{.position = 33, .constrained = true}}, {}),
                                      [](State &, Layout &) {}));
        for (const size_t coded : {1, 3, 8, 11}) { // or the target would not test what it should
            const std::vector<Section> sections = open_bytes(made[coded])->sections();
            expect(std::any_of(
                       sections.begin(), sections.end(),
                       [](const Section &section) { return section.frame.codec == Codec::zstd; }),
                   "nothing coded in a file to begin with");
        }
        return made;
    }();
    return files;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    Bytes bytes = bases()[(data[0] % 8 + data[0] / 128 * 8) % bases().size()];
    const uint64_t positions[] = {34, 46, 64, 301};
    const Use use{static_cast<Use::Kind>(data[0] >> 3 & 3),
                  (data[1] & 1) != 0,
                  (data[1] & 2) != 0,
                  (data[1] & 4) != 0,
                  {positions[data[1] >> 3 & 3], (data[1] & 32) != 0, (data[1] & 64) != 0,
                   (data[1] & 0x98) == 0x98, // of position 301
                   false, (data[0] & 0x40) != 0, (data[0] & 0x20) != 0, false,
                   (data[1] & 0x81) == 0x81}};
    try {
        bool opens = true;
        for (size_t at = 2; at + sizeof(Edit) <= size && opens; at += sizeof(Edit)) {
            Edit edit;
            std::memcpy(&edit, data + at, sizeof edit);
            bytes = edited(std::move(bytes), edit);
            opens = opens_when_mended(bytes);
        }
        if (use.stream) {
            bytes = as_stream(std::move(bytes));
        }
        use_file(bytes, use);
    } catch (const Error &error) {
        check_refusal(error);
    }
    return 0;
}
