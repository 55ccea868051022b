// libFuzzer target: the records of a store, edited as the input says and named and sealed again, so
// that they reach the parsers and what reads by them. A refusal gives a reason; a record that is
// accepted has no other form; a session that opens is what some put has stored.
//
// Input: the store to begin with, and which record is edited; edits of four bytes: a place (u16),
// what is done there, a byte.
#include <cstdint>
#include <cstring>

#include "format/store/store.h"
#include "fuzz_bases.h"
#include "memory_backend.h"
#include "tests/fuzz/watched.h"

using namespace stasis;
using namespace stasis::format;
using namespace stasis::fuzz;

namespace {

// A record becomes vectors of about its size, some of which are held twice while they grow.
constexpr size_t kTimes = 8, kMoreBytes = 64 << 10;

struct Base {
    std::map<std::string, Bytes> objects; // all of a store
    StoredRoot root;
    std::vector<Digest> states; // that were put
};

const std::vector<Base> &bases() {
    static const std::vector<Base> made = [] {
        std::vector<Base> all;
        for (const Keep keep : {Keep::full, Keep::none}) {
            const auto backend = std::make_shared<MemoryBackend>();
            const Store store(backend);
            Base base;
            StorePutOptions options;
            options.save.keep = keep;
            const Bytes large(5000, 7); // a payload
            for (const uint64_t position : {33, 45, 70}) {
                State state = small_state({.position = position, .hybrid = true});
                state.host_data = with_value(nullptr, "large", large);
                const StorePut put = store.put(state, "s", options);
                options.expected = put.mark;
                base.states.push_back(state.digest);
            }
            backend->list("",
                          [&](const ListedObject &object) {
                              base.objects[object.key] = *backend->get(object.key, {});
                              return true;
                          },
                          {});
            base.root = decode_stored_root(base.objects.at(root_key("s")), root_key("s"));
            all.push_back(std::move(base));
        }
        return all;
    }();
    return made;
}

Bytes edited(Bytes bytes, const uint8_t *edits, size_t size) {
    for (; size >= 4 && !bytes.empty(); edits += 4, size -= 4) {
        uint16_t at = 0;
        std::memcpy(&at, edits, sizeof at);
        const auto place = bytes.begin() + static_cast<ptrdiff_t>(at % bytes.size());
        switch (edits[2] % 4) {
        case 0:
            *place ^= edits[3];
            break;
        case 1:
            *place = edits[3];
            break;
        case 2:
            bytes.erase(place);
            break;
        default:
            bytes.insert(place, edits[3]);
        }
    }
    return bytes;
}

void seal_again(Bytes &root) {
    if (root.size() >= 32) {
        const Digest seal = Sha256().bytes(root.data(), root.size() - 32).finish();
        std::copy(seal.bytes.begin(), seal.bytes.end(), root.end() - 32);
    }
}

// What the records say is read as any session is.
void use(const Base &base, const std::map<std::string, Bytes> &changed) {
    const auto backend = std::make_shared<MemoryBackend>();
    for (const auto *objects : {&changed, &base.objects}) {
        for (const auto &[key, bytes] : *objects) {
            backend->put(key, bytes, {});
        }
    }
    const StoredSession opened = Store(backend).open("s");
    State state = opened.snapshot->state();
    opened.snapshot->read_pages(state, {});
    opened.snapshot->read_states(state, {});
    expect(std::find(base.states.begin(), base.states.end(), state.digest) != base.states.end(),
           "a state that nobody has put");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    const Base &base = bases()[data[0] % bases().size()];
    const std::string key = root_key("s");
    StoredRoot root = base.root;
    try {
        if (data[1] % 4 == 0) {
            Bytes bytes = edited(base.objects.at(key), data + 2, size - 2);
            seal_again(bytes);
            {
                const Meter meter(kTimes * bytes.size() + kMoreBytes);
                root = decode_stored_root(bytes, key);
            }
            expect(encode_stored_root(root) == bytes, "a root of two forms");
            use(base, {{key, bytes}});
            return 0;
        }
        SegmentRef &ref = root.segments[data[1] % root.segments.size()];
        const Bytes bytes = edited(base.objects.at(object_key(ref.digest)), data + 2, size - 2);
        Segment segment;
        {
            const Meter meter(kTimes * bytes.size() + kMoreBytes);
            segment = decode_segment(bytes, "objects/edited");
        }
        expect(encode_segment(segment) == bytes, "a segment of two forms");
        ref.digest = Sha256().bytes(bytes.data(), bytes.size()).finish();
        ref.object_bytes = bytes.size();
        use(base, {{key, encode_stored_root(root)}, {object_key(ref.digest), bytes}});
    } catch (const Error &error) {
        check_refusal(error);
    }
    return 0;
}
