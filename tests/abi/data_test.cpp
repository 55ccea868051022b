// Data of hosts: names and values in a session and its snapshots, their limits, and that nothing
// that is computed depends on them.
#include "tests/abi/changed_files.h"
#include "tests/abi/conversation.h"
#include "tests/abi/pulled.h"

using namespace abi_test;

namespace {

using Data = std::map<std::string, std::string>;

stasis_status set_data(stasis_session *session, const std::string &name, const std::string &bytes,
                       stasis_error *error = nullptr) {
    return stasis_session_set_data(session, name.c_str(), bytes.data(), bytes.size(), error);
}

void put_data(const Session &session, const std::string &name, const std::string &bytes) {
    stasis_error error;
    const stasis_status status = set_data(session.get(), name, bytes, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
}

stasis_status remove_data(const Session &session, const char *name) {
    return stasis_session_set_data(session.get(), name, nullptr, 0, nullptr);
}

template <class Handle, class List, class Get>
Data data_of(const Handle *handle, const List &list, const Get &get) {
    size_t count = 0;
    const stasis_status asked =
        list(handle, nullptr, sizeof(stasis_data_entry), 0, &count, nullptr);
    REQUIRE(asked == (count == 0 ? STASIS_OK : STASIS_BUFFER_TOO_SMALL));
    std::vector<stasis_data_entry> entries(count);
    REQUIRE(list(handle, entries.data(), sizeof entries[0], count, &count, nullptr) == STASIS_OK);
    Data data;
    std::string before;
    for (const stasis_data_entry &entry : entries) {
        CHECK(entry.struct_size == sizeof entry);
        CHECK(entry.reserved == 0);
        CHECK(before < entry.name);
        before = entry.name;
        std::string bytes(entry.bytes, '\0');
        size_t length = 7;
        if (entry.bytes > 0) {
            CHECK(get(handle, entry.name, bytes.data(), bytes.size() - 1, &length, nullptr) ==
                  STASIS_BUFFER_TOO_SMALL);
            CHECK(length == entry.bytes);
        }
        REQUIRE(get(handle, entry.name, bytes.data(), bytes.size(), &length, nullptr) == STASIS_OK);
        CHECK(length == entry.bytes);
        data[entry.name] = bytes;
    }
    return data;
}

Data data_of(const Session &session) {
    return data_of(session.get(), stasis_session_list_data, stasis_session_get_data);
}

Data data_of(const Snapshot &snapshot) {
    return data_of(snapshot.get(), stasis_snapshot_list_data, stasis_snapshot_get_data);
}

const std::string kBytes("zero \0 and \xFF\xFE", 13);

Data put_some(const Session &session) {
    put_data(session, "title", "About Ada");
    put_data(session, "user", "");
    put_data(session, "\xC3\xA9", kBytes);
    put_data(session, "large", std::string(500000, 'x'));
    return {{"title", "About Ada"},
            {"user", ""},
            {"\xC3\xA9", kBytes},
            {"large", std::string(500000, 'x')}};
}

// The stream form of a session, and the session that it is read as.
Session read_again(const Session &session, stasis_model *model) {
    std::string bytes;
    auto sink = sized<stasis_sink>();
    sink.user = &bytes;
    sink.write = [](void *user, const void *data, size_t size) -> int32_t {
        static_cast<std::string *>(user)->append(static_cast<const char *>(data), size);
        return 0;
    };
    REQUIRE(stasis_session_write(session.get(), &sink, nullptr, nullptr) == STASIS_OK);
    struct Rest {
        std::string bytes;
        size_t at = 0;
    } rest{bytes};
    auto source = sized<stasis_source>();
    source.user = &rest;
    source.read = [](void *user, void *data, size_t size) -> int64_t {
        Rest &from = *static_cast<Rest *>(user);
        const size_t count = std::min(size, from.bytes.size() - from.at);
        std::memcpy(data, from.bytes.data() + from.at, count);
        from.at += count;
        return static_cast<int64_t>(count);
    };
    stasis_session *again = nullptr;
    REQUIRE(stasis_session_read(model, &source, nullptr, &again, nullptr) == STASIS_OK);
    return Session(again);
}

uint64_t size_of(const std::string &path) {
    return std::filesystem::file_size(path);
}

} // namespace

TEST_CASE("stasis_session_set_data: data comes back from a session, a fork and every snapshot") {
    const Folder folder;
    const std::string path = folder.file("s");
    const Session session = session_of(gemma(), some_tokens(70)), plain = fork(session.get());
    CHECK(data_of(session).empty());
    const Data data = put_some(session);
    CHECK(data_of(session) == data);
    CHECK(digest(session.get()) == digest(plain.get()));
    CHECK(logits_of(session) == logits_of(plain));

    // A fork has its own; a rewind keeps it, also one to 0.
    const Session child = fork(session.get());
    put_data(child, "title", "Another");
    REQUIRE(remove_data(child, "large") == STASIS_OK);
    CHECK(data_of(child) == Data{{"title", "Another"}, {"user", ""}, {"\xC3\xA9", kBytes}});
    CHECK(data_of(session) == data);
    rewind(child.get(), 0);
    CHECK(data_of(child).size() == 3);
    rewind(session.get(), 60);
    CHECK(data_of(session) == data);
    CHECK(data_of(read_again(session, gemma())) == data);

    for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
        std::filesystem::remove(path);
        REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD, keep) == STASIS_OK);
        CHECK(data_of(open_snapshot(path)) == data);
        const Session loaded = load(gemma(), path);
        CHECK(data_of(loaded) == data);
        CHECK(digest(loaded.get()) == digest(session.get()));
        append(loaded.get(), some_tokens(3));
        REQUIRE(remove_data(loaded, "user") == STASIS_OK);
        REQUIRE(save(loaded.get(), path) == STASIS_OK);
        REQUIRE(stasis_snapshot_compact(path.c_str(), nullptr, nullptr) == STASIS_OK);
        CHECK(data_of(open_snapshot(path)) == data_of(loaded));
        CHECK(data_of(load(gemma(), path)).size() == 3);
    }
    // At position 0 as well.
    const Session empty = create(gemma());
    put_data(empty, "a", "b");
    REQUIRE(save(empty.get(), folder.file("empty")) == STASIS_OK);
    CHECK(data_of(load(gemma(), folder.file("empty"))) == Data{{"a", "b"}});
}

TEST_CASE("stasis_session_set_data: files with and without data are the same to compare, verify "
          "and whoever keeps none") {
    const Folder folder;
    const std::string with = folder.file("with"), without = folder.file("without");
    stasis_model *const model = shared_model("recall-llama");
    const Session session = create(model), plain = create(model);
    put_some(session);
    CHECK(ask(session.get(), "hello") == ask(plain.get(), "hello"));
    REQUIRE(save(session.get(), with) == STASIS_OK);
    REQUIRE(save(plain.get(), without) == STASIS_OK);
    auto difference = sized<stasis_difference>();
    REQUIRE(stasis_snapshot_compare(open_snapshot(with).get(), open_snapshot(without).get(),
                                    &difference, nullptr) == STASIS_OK);
    CHECK(difference.equal == 1);
    const stasis_snapshot_info a = snapshot_info(with), b = snapshot_info(without);
    CHECK(std::memcmp(a.digest.bytes, b.digest.bytes, 32) == 0);
    CHECK(std::memcmp(a.root.bytes, b.root.bytes, 32) != 0);
    CHECK(a.dead_bytes == b.dead_bytes);
    auto report = sized<stasis_verify_report>();
    auto options = sized<stasis_verify_options>();
    options.flags = STASIS_VERIFY_STRICT;
    REQUIRE(stasis_snapshot_verify(open_snapshot(with).get(), model, &options, &report, nullptr) ==
            STASIS_OK);
    CHECK(report.verified == 1);
    // Removed again, all of it: the file is what it would be without.
    for (const auto &[name, bytes] : data_of(session)) {
        REQUIRE(remove_data(session, name.c_str()) == STASIS_OK);
    }
    REQUIRE(save(session.get(), with, STASIS_SAVE_REPLACE) == STASIS_OK);
    CHECK(read_file(with) == read_file(without));
}

TEST_CASE("stasis_session_save: data that did not change is not written again") {
    const Folder folder;
    const std::string path = folder.file("s");
    const Session session = session_of(gemma(), some_tokens(10));
    put_some(session);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const uint64_t first = size_of(path);
    CHECK(first > 500000);
    const Session other = load(gemma(), path); // another process, as it were
    append(session.get(), some_tokens(1));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(size_of(path) - first < 20000);
    put_data(session, "title", "About Charles");
    put_data(session, "large", std::string(500000, 'x')); // set again, to what it was
    REQUIRE(save(session.get(), path) == STASIS_OK);
    append(other.get(), some_tokens(1));
    REQUIRE(save(other.get(), path) == STASIS_OK);
    CHECK(size_of(path) - first < 60000);
    CHECK(data_of(load(gemma(), path)).at("title") == "About Ada");
    put_data(other, "large", std::string(500000, 'y'));
    REQUIRE(save(other.get(), path) == STASIS_OK);
    CHECK(size_of(path) - first > 500000);
    CHECK(snapshot_info(path).dead_bytes > 500000);
}

TEST_CASE("stasis_session_set_data: names and sizes beyond the limits are refused, and what was "
          "there stays") {
    const Session session = create(gemma());
    put_data(session, "a", "b");
    stasis_error error;
    const auto refused = [&](stasis_status expected, const char *why, const std::string &name,
                             const std::string &bytes) {
        CAPTURE(why);
        CHECK(set_data(session.get(), name, bytes, &error) == expected);
        CHECK_MESSAGE(contains(error, why), error.message);
        CHECK(data_of(session) == Data{{"a", "b"}});
    };
    refused(STASIS_INVALID_ARGUMENT, "of 0 bytes: expected 1 to 255", "", "x");
    refused(STASIS_INVALID_ARGUMENT, "of 256 bytes", std::string(256, 'a'), "x");
    refused(STASIS_INVALID_ARGUMENT, "not UTF-8: byte 1", "a\xFF", "x");
    refused(STASIS_UNSUPPORTED, "a value of 16777217 bytes: at most 16777216", "c",
            std::string(STASIS_DATA_BYTES_MAX + 1, 'x'));
    refused(STASIS_UNSUPPORTED, "16777217 bytes together: at most 16777216", "c",
            std::string(STASIS_DATA_BYTES_MAX - 2, 'x'));
    put_data(session, "c", std::string(STASIS_DATA_BYTES_MAX - 3, 'x'));
    put_data(session, "c", "x"); // in place of it
    CHECK(remove_data(session, "b") == STASIS_NOT_FOUND);
    CHECK(remove_data(session, "c") == STASIS_OK);
    put_data(session, std::string(255, 'n'), "x");
    for (uint32_t i = 2; i < STASIS_DATA_ENTRIES_MAX; ++i) {
        put_data(session, std::to_string(i), "");
    }
    CHECK(set_data(session.get(), "one more", "", &error) == STASIS_UNSUPPORTED);
    CHECK_MESSAGE(contains(error, "1025 names: at most 1024"), error.message);
    put_data(session, "7", "other");
    CHECK(data_of(session).size() == STASIS_DATA_ENTRIES_MAX);
    const Folder folder;
    REQUIRE(save(session.get(), folder.file("s")) == STASIS_OK);
    CHECK(data_of(load(gemma(), folder.file("s"))) == data_of(session));
}

TEST_CASE("stasis_session_get_data: what is not there, and buffers that are too small") {
    const Session session = create(gemma());
    stasis_error error;
    size_t length = 5;
    char byte = 0;
    CHECK(stasis_session_get_data(session.get(), "a", &byte, 1, &length, &error) ==
          STASIS_NOT_FOUND);
    CHECK(contains(error, "no data of the name a"));
    put_data(session, "a", "bc");
    CHECK(stasis_session_get_data(session.get(), "", &byte, 1, &length, &error) ==
          STASIS_NOT_FOUND);
    CHECK(stasis_session_get_data(session.get(), "a", &byte, 1, &length, &error) ==
          STASIS_BUFFER_TOO_SMALL);
    CHECK(length == 2);
    CHECK(byte == 0);
    size_t count = 0;
    auto entry = sized<stasis_data_entry>();
    put_data(session, "b", "");
    CHECK(stasis_session_list_data(session.get(), &entry, sizeof entry, 1, &count, &error) ==
          STASIS_BUFFER_TOO_SMALL);
    CHECK(count == 2);
    for (const size_t stride : {size_t{0}, size_t{7}, size_t{12}}) {
        CHECK(stasis_session_list_data(session.get(), &entry, stride, 2, &count, &error) ==
              STASIS_INVALID_ARGUMENT);
        CHECK(contains(error, "expected 272"));
    }
    // An older host, whose struct ends early, and a newer one.
    alignas(8) unsigned char raw[2 * 320];
    std::memset(raw, 0xAB, sizeof raw);
    auto *entries = reinterpret_cast<stasis_data_entry *>(raw);
    REQUIRE(stasis_session_list_data(session.get(), entries, 320, 2, &count, nullptr) == STASIS_OK);
    CHECK(reinterpret_cast<stasis_data_entry *>(raw + 320)->name == std::string("b"));
    CHECK(raw[319] == 0);
    std::memset(raw, 0xAB, sizeof raw);
    REQUIRE(stasis_session_list_data(session.get(), entries, 16, 2, &count, nullptr) == STASIS_OK);
    CHECK(entries->bytes == 2);
    CHECK(raw[16 + 4] == 0);
    CHECK(raw[32] == 0xAB);
}

TEST_CASE("stasis_session_set_data: while a generation is open, and what it draws is the same") {
    stasis_model *const model = shared_model("recall-llama");
    const Session session = create(model), plain = create(model);
    std::vector<std::string> texts;
    for (const Session *each : {&session, &plain}) {
        say(each->get(), "hello");
        auto options = sized<stasis_generate_options>();
        options.tokens_max = 12;
        stasis_generation *generation = nullptr;
        REQUIRE(stasis_generation_begin(each->get(), &options, &generation, nullptr) == STASIS_OK);
        std::string text;
        auto event = sized<stasis_generated>();
        do {
            REQUIRE(stasis_generation_next(generation, &event, nullptr) == STASIS_OK);
            text.append(event.text, event.length);
            if (each == &session) {
                put_data(session, "so far", text);
                CHECK(data_of(session).at("so far") == text);
            }
        } while (event.last == 0);
        stasis_generation_end(generation);
        texts.push_back(text);
    }
    CHECK(texts[0] == texts[1]);
    CHECK(digest(session.get()) == digest(plain.get()));
}

TEST_CASE("stasis_snapshot_open: data that was tampered with is found") {
    const Folder folder;
    const std::string path = folder.file("s"), forged = folder.file("forged");
    const Session session = session_of(gemma(), some_tokens(5));
    put_data(session, "role", "is no administrator");
    REQUIRE(save(session.get(), path) == STASIS_OK);
    std::string bytes = read_file(path);
    const size_t at = bytes.find("is no administrator");
    REQUIRE(at != std::string::npos);
    write_file(forged, bytes.replace(at, 19, "is an administrator"));
    stasis_error error;
    CHECK(try_load(gemma(), forged, error) == STASIS_CORRUPT);
    CHECK(contains(error, "host_value"));
}
