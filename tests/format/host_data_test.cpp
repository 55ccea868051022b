// Data of hosts in a file: what comes back, what a commit writes of it, what of it is refused, and
// how older builds are kept from losing it.
#include <doctest/doctest.h>

#include <cstring>

#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

constexpr size_t kIndexBegin = 8, kRefBytes = 48; // count; then places, sizes and names

State plain_state() {
    return sample_state(kSmall);
}

std::shared_ptr<const Snapshot> open_copy(const Bytes &bytes) {
    return Snapshot::open("memory", memory_files(bytes));
}

// The commit that wrote each section of a kind, in the order of the file.
std::vector<uint64_t> commits_of(const std::string &path, SectionKind kind) {
    std::vector<uint64_t> commits;
    for (const Section &section : Snapshot::open(path)->sections()) {
        if (section.frame.kind == kind) {
            commits.push_back(section.frame.sequence);
        }
    }
    return commits;
}

Bytes stream_of(const State &state) {
    Bytes bytes;
    write_stream(state,
                 {&bytes,
                  [](void *user, const void *data, size_t size_bytes) {
                      const auto *from = static_cast<const uint8_t *>(data);
                      auto *to = static_cast<Bytes *>(user);
                      to->insert(to->end(), from, from + size_bytes);
                  }},
                 {});
    return bytes;
}

std::shared_ptr<const HostData> one(const std::string &name, size_t bytes) {
    auto data = std::make_shared<HostData>();
    (*data)[name] = std::make_shared<const HostValue>(HostValue{std::vector<uint8_t>(bytes), {}});
    return data;
}

// The file with another index, of the same or another length.
Bytes with_index(const Bytes &file, const std::function<void(Bytes &)> &change) {
    const auto snapshot = open_copy(file);
    const SectionRef ref = snapshot->layout().host_data;
    const auto begin = file.begin() + static_cast<ptrdiff_t>(ref.offset + kFrameBytes);
    Bytes index(begin, begin + static_cast<ptrdiff_t>(ref.bytes));
    change(index);
    Bytes more;
    append_section(more, SectionKind::host_data, index);
    State state = snapshot->state();
    Layout layout = snapshot->layout();
    layout.host_data = {snapshot->root().manifest_offset, index.size(),
                        Sha256().bytes(index.data(), index.size()).finish()};
    return with_manifest(file, *snapshot, more, build_manifest(state, layout));
}

void set_u64(Bytes &bytes, size_t at, uint64_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

} // namespace

TEST_CASE("save: data comes back from files, streams and compacted files, and is in no digest") {
    const State state = with_data(plain_state(), 5000);
    CHECK(state.digest == plain_state().digest);
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    for (const SaveOptions &options :
         {SaveOptions{}, SaveOptions{.codec = Codec::zstd}, SaveOptions{.keep = Keep::none}}) {
        const auto snapshot = open_copy(saved(state, options));
        CHECK(snapshot->root().features_read == kFeatureHostData);
        State found = snapshot->state();
        CHECK(found.host_data != nullptr);
        CHECK(found.digest == state.digest);
        found.pages = state.pages;
        check_same(state, found);
    }
    const Bytes stream = stream_of(state);
    CHECK(open_copy(stream)->state().host_data->size() == 3);
    write_bytes(path, stream);
    save(with_data(small_state(40), 5000), path, {});
    compact(path, {});
    check_same(with_data(small_state(40), 5000), load(path, {}));
    CHECK(commits_of(path, SectionKind::host_value) == std::vector<uint64_t>{1, 1});
    // Gone with the next commit; a file that never had it is the same, byte for byte.
    save(small_state(41), path, {});
    CHECK(load(path, {}).host_data == nullptr);
    CHECK(Snapshot::open(path)->root().features_read == 0);
    save(small_state(41), path, {.replace = true});
    CHECK(read_bytes(path) == saved(small_state(41)));
}

TEST_CASE("save: a value that the file has under its name is not written again, nor are names") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const size_t large = 300000;
    save(with_data(small_state(40), large), path, {});
    const uint64_t first = read_bytes(path).size();
    CHECK(first > large);
    for (uint64_t position = 41; position < 45; ++position) { // the same, read anew each time
        save(with_data(small_state(position), large), path, {});
    }
    CHECK(read_bytes(path).size() < first + 4 * 8192);
    CHECK(commits_of(path, SectionKind::host_value) == std::vector<uint64_t>{1, 1});
    CHECK(commits_of(path, SectionKind::host_data) == std::vector<uint64_t>{1});

    // One value and one name more: these and the index are written, in the sixth commit.
    State state = with_data(small_state(45), large);
    const std::vector<uint8_t> other = {1, 2, 3};
    state.host_data = with_value(state.host_data, "a title", other);
    state.host_data = with_value(state.host_data, "b", other);
    save(state, path, {});
    CHECK(commits_of(path, SectionKind::host_value) == std::vector<uint64_t>{1, 6, 6});
    CHECK(commits_of(path, SectionKind::host_data) == std::vector<uint64_t>{6});
    CHECK(read_bytes(path).size() < first + 5 * 8192);
    // A name less: the index alone.
    state.host_data = with_value(state.host_data, "b", std::nullopt);
    save(state, path, {});
    CHECK(commits_of(path, SectionKind::host_value) == std::vector<uint64_t>{1, 6});
    CHECK(commits_of(path, SectionKind::host_data) == std::vector<uint64_t>{7});
    check_same(state, load(path, {}));
    // And what the saver remembers of the file is what the file says.
    const auto known = save(state, path, {});
    state.host_data = with_value(state.host_data, "a title", std::vector<uint8_t>{9});
    save(state, path, {.known = known});
    check_same(state, load(path, {}));
    CHECK(commits_of(path, SectionKind::host_value) == std::vector<uint64_t>{1, 9});
}

TEST_CASE("save: data beyond the limits is refused") {
    State state = plain_state();
    state.host_data = std::make_shared<HostData>();
    CHECK_THROWS_WITH_AS(saved(state), doctest::Contains("in place of no data"), Error);
    state.host_data = one("", 1);
    CHECK_THROWS_WITH_AS(saved(state), doctest::Contains("a name of data of 0 bytes"), Error);
    state.host_data = one(std::string(256, 'a'), 1);
    CHECK_THROWS_WITH_AS(saved(state), doctest::Contains("of 256 bytes"), Error);
    state.host_data = one(std::string("a\0b", 3), 1);
    CHECK_THROWS_WITH_AS(saved(state), doctest::Contains("one of them zero"), Error);
    state.host_data = one("abcd", kDataBytesMax - 3);
    CHECK_THROWS_WITH_AS(saved(state), doctest::Contains("have 16777217 bytes together"), Error);
    auto many = std::make_shared<HostData>();
    for (size_t i = 0; i <= kDataEntriesMax; ++i) {
        (*many)[std::to_string(i)] = std::make_shared<const HostValue>();
    }
    state.host_data = many;
    CHECK_THROWS_WITH_AS(saved(state), doctest::Contains("under 1025 names"), Error);
    many->erase("7");
    CHECK(open_copy(saved(state))->state().host_data->size() == kDataEntriesMax);
    state.host_data = with_value(nullptr, "abcd", std::vector<uint8_t>(kDataBytesMax - 4));
    CHECK(open_copy(saved(state))->state().host_data->at("abcd")->bytes.size() ==
          kDataBytesMax - 4);
}

TEST_CASE("Snapshot::open: a root that tells otherwise than the data is refused") {
    for (const bool there : {false, true}) {
        const Bytes file = saved(there ? with_data(plain_state(), 100) : plain_state());
        Root root = read_root(file);
        root.features_read ^= kFeatureHostData;
        check_refused("data of hosts: the root's features and the manifest disagree",
                      with_root(file, root, kSlotA));
    }
}

TEST_CASE("Snapshot::open: an index that no save writes is refused") {
    const Bytes file = saved(with_data(plain_state(), 5000));
    const auto bad = [&](const char *why, const std::function<void(Bytes &)> &change) {
        check_refused(why, with_index(file, change));
    };
    CHECK(refusal(with_index(file, [](Bytes &) {})).empty());
    const size_t second = kIndexBegin + kRefBytes + 4 + 7; // after "a title"
    bad("0 entries", [](Bytes &b) { set_u64(b, 0, 0); });
    bad("1025 entries", [](Bytes &b) { set_u64(b, 0, 1025); });
    bad("4 entries", [](Bytes &b) {
        set_u64(b, 0, 4);
        b.resize(170);
    });
    bad("bytes behind the names", [](Bytes &b) { set_u64(b, 0, 2); });
    bad("bytes are left", [](Bytes &b) { b.resize(b.size() - 1); });
    bad("a name of 256 bytes", [](Bytes &b) { b[kIndexBegin + kRefBytes] = 0, b[57] = 1; });
    bad("a name of data of 0 bytes", [](Bytes &b) { b[kIndexBegin + kRefBytes] = 0; });
    bad("one of them zero", [](Bytes &b) { b[kIndexBegin + kRefBytes + 4] = 0; });
    bad("names 0 and 1 do not ascend", [](Bytes &b) { b[kIndexBegin + kRefBytes + 4] = 'z'; });
    bad("value 0 has 0 bytes", [](Bytes &b) { set_u64(b, kIndexBegin + 8, 0); });
    bad("value 0 has 18446744073709551615 bytes",
        [](Bytes &b) { set_u64(b, kIndexBegin + 8, UINT64_MAX); });
    bad("named at byte 0,", [&](Bytes &b) { set_u64(b, second + 8, 1); });
    bad("named at byte 64,", [&](Bytes &b) { set_u64(b, second, 64), set_u64(b, second + 8, 1); });
}

TEST_CASE("Snapshot::open: places that many names share are refused before they are read") {
    State state = plain_state();
    state.host_data = with_value(nullptr, "0000", std::vector<uint8_t>(16000, 7));
    const Bytes file = saved(state);
    const auto repeated = [&](uint32_t count) {
        return with_index(file, [&](Bytes &index) {
            const Bytes entry(index.begin() + kIndexBegin, index.end());
            index.resize(kIndexBegin);
            set_u64(index, 0, count);
            for (uint32_t i = 0; i < count; ++i) {
                index.insert(index.end(), entry.begin(), entry.end());
                std::snprintf(reinterpret_cast<char *>(&*(index.end() - 4)), 4, "%03u", i % 1000);
                index.back() = static_cast<uint8_t>('0' + i / 1000);
            }
        });
    };
    CHECK(refusal(repeated(1)).empty());
    check_refused("value 4 has 16000 bytes, in a state of", repeated(700));
}

TEST_CASE("Snapshot::open: a value that was changed is found, even with its checksum made right") {
    Bytes file = saved(with_data(plain_state(), 5000));
    uint64_t offset = 0;
    for (const Section &section : open_copy(file)->sections()) {
        if (section.frame.kind == SectionKind::host_value) {
            offset = section.offset;
        }
    }
    file[offset + kFrameBytes + 100] ^= 1;
    check_refused("(host_value): its bytes do not give its checksum", file);
    reframe(file, offset, SectionKind::host_value, 5000);
    check_refused("(host_value): SHA-256 is", file);
}
