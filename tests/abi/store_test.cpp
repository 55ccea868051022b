// Sessions in stores, by the public header: what is got continues as what was put, to the bit.
#include <thread>

#include "tests/abi/constrained.h"
#include "tests/abi/stored.h"

using namespace abi_test;

namespace {

std::string uri_in(const Folder &folder, const char *scheme = "dir:") {
    return scheme + folder.file("store");
}

// Both continue with the same tokens, to the same digest.
void continue_alike(stasis_session *a, stasis_session *b) {
    REQUIRE(digest(a) == digest(b));
    append(a, some_tokens(20, 9));
    append(b, some_tokens(20, 9));
    CHECK(draw(a, 5) == draw(b, 5));
    CHECK(digest(a) == digest(b));
}

// Paths of the objects in a store's folder.
std::vector<std::string> objects_in(const Folder &folder) {
    std::vector<std::string> paths;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder.file("store"))) {
        if (entry.is_regular_file() &&
            entry.path().string().find("/objects/") != std::string::npos) {
            paths.push_back(entry.path());
        }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

bool same(const Digest &a, const stasis_digest &b) {
    return std::equal(a.begin(), a.end(), b.bytes);
}

} // namespace

TEST_CASE("stores: every kind of session is got as it was put, and goes on so, in each form") {
    for (const char *name : {"zoo/gemma3-text", "zoo/llama-gqa-untied", "zoo/qwen3_5-dense",
                             "zoo/lfm2", "zoo/qwen3-moe", "zoo/gemma4-e", "zoo/mistral-window"}) {
        CAPTURE(name);
        stasis_model *model = shared_model(name);
        const Folder folder;
        const bool database = name == std::string("zoo/gemma3-text");
        const Store store = open_store(uri_in(folder, database ? "sqlite:" : "dir:"));
        for (const auto &[keep, codec] : {std::pair(STASIS_KEEP_FULL, STASIS_CODEC_RAW),
                                          std::pair(STASIS_KEEP_FULL, STASIS_CODEC_ZSTD),
                                          std::pair(STASIS_KEEP_NONE, STASIS_CODEC_RAW)}) {
            const std::string key = std::to_string(keep) + " " + std::to_string(codec);
            const Session session = session_of(model, some_tokens(100));
            REQUIRE(stasis_session_set_data(session.get(), "title", "A", 1, nullptr) == STASIS_OK);
            const std::string large(9000, 'x');
            REQUIRE(stasis_session_set_data(session.get(), "large", large.data(), large.size(),
                                            nullptr) == STASIS_OK);
            const Put first = must_put(store.get(), session.get(), key, 0, keep, codec);
            CHECK(same(digest(session.get()), first.result.state));
            CHECK(first.result.sequence == 1);
            CHECK(first.result.bytes_written > 0);
            draw(session.get(), 10);
            rewind(session.get(), 105);
            append(session.get(), some_tokens(3, 4));
            CHECK(must_put(store.get(), session.get(), key, 0, keep, codec).result.sequence == 2);
            const Session got = get(store.get(), model, key);
            size_t length = 0;
            std::string value(9000, ' ');
            REQUIRE(stasis_session_get_data(got.get(), "large", value.data(), value.size(), &length,
                                            nullptr) == STASIS_OK);
            CHECK(value == large);
            continue_alike(session.get(), got.get());
        }
    }
}

TEST_CASE("stores: evictions, constraints, empty sessions and snapshots") {
    const Folder folder;
    const Store store = open_store(uri_in(folder));
    const Session evicted = session_of(gemma(), some_tokens(150));
    REQUIRE(stasis_session_evict(evicted.get(), 5, 80, nullptr) == STASIS_OK);
    must_put(store.get(), evicted.get(), "evicted");
    const Session empty = create(gemma());
    must_put(store.get(), empty.get(), "empty");
    REQUIRE(save(evicted.get(), folder.file("e.stasis")) == STASIS_OK);

    auto difference = sized<stasis_difference>();
    REQUIRE(stasis_snapshot_compare(snapshot_of(store.get(), "evicted").get(),
                                    open_snapshot(folder.file("e.stasis")).get(), &difference,
                                    nullptr) == STASIS_OK);
    CHECK(difference.equal == 1);
    auto report = sized<stasis_verify_report>();
    auto options = sized<stasis_verify_options>();
    options.flags = STASIS_VERIFY_STRICT;
    REQUIRE(stasis_snapshot_verify(snapshot_of(store.get(), "evicted").get(), gemma(), &options,
                                   &report, nullptr) == STASIS_OK);
    CHECK(report.verified == 1);
    const Snapshot held = snapshot_of(store.get(), "evicted"); // outlives the store's handle
    const Session got = get(store.get(), gemma(), "evicted");
    continue_alike(evicted.get(), got.get());
    const Session nothing = get(store.get(), gemma(), "empty");
    continue_alike(empty.get(), nothing.get());

    const Session drawn = session_of(gemma(), some_tokens(30));
    auto model = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(gemma(), &model, nullptr) == STASIS_OK);
    std::vector<uint32_t> allowed((model.vocabulary + 31) / 32);
    allowed[0] = 0xA8; // tokens 3, 5 and 7
    REQUIRE(stasis_session_set_allowed(drawn.get(), allowed.data(), allowed.size(), nullptr) ==
            STASIS_OK);
    must_put(store.get(), drawn.get(), "drawn");
    const Session copy = get(store.get(), gemma(), "drawn");
    CHECK(draw(copy.get()) == draw(drawn.get()));
    CHECK(digest(copy.get()) == digest(drawn.get()));
}

TEST_CASE("stores: of two that continue one session the second is told the newer root") {
    const Folder folder;
    const Store store = open_store(uri_in(folder));
    const Session first = session_of(gemma(), some_tokens(70));
    must_put(store.get(), first.get(), "s");
    const Store other = open_store("dir:" + folder.file("./store"));
    const Session second = get(other.get(), gemma(), "s");
    const Session forked = fork(second.get());
    append(first.get(), some_tokens(3, 2));
    const Put newer = must_put(other.get(), first.get(), "s"); // the same store by another handle
    append(second.get(), some_tokens(4, 3));
    for (const stasis_session *late : {second.get(), forked.get()}) {
        const Put refused = put(store.get(), const_cast<stasis_session *>(late), "s");
        CHECK(refused.status == STASIS_CONFLICT);
        CHECK(std::memcmp(&refused.result.root, &newer.result.root, 32) == 0);
        CHECK(contains(refused.error, "session 's'"));
    }
    CHECK(digest(get(store.get(), gemma(), "s").get()) == digest(first.get()));
    CHECK(put(store.get(), create(gemma()).get(), "s").status == STASIS_CONFLICT);
    CHECK(must_put(store.get(), second.get(), "s", STASIS_STORE_OVERWRITE).result.sequence == 3);
    CHECK(digest(get(store.get(), gemma(), "s").get()) == digest(second.get()));
    CHECK(put(store.get(), first.get(), "s").status == STASIS_CONFLICT);

    // A fork of what was put may be what goes on.
    const Session child = fork(second.get());
    append(child.get(), some_tokens(5, 5));
    must_put(store.get(), child.get(), "s");
    CHECK(put(store.get(), second.get(), "s").status == STASIS_CONFLICT);
    REQUIRE(stasis_store_remove(store.get(), "s", nullptr, nullptr) == STASIS_OK);
    const Put gone = put(store.get(), child.get(), "s");
    CHECK(gone.status == STASIS_CONFLICT);
    CHECK(std::all_of(std::begin(gone.result.root.bytes), std::end(gone.result.root.bytes),
                      [](uint8_t byte) { return byte == 0; }));
}

TEST_CASE("stores: a constrained session goes on under its constraint, at any point of a reply") {
    for (const char *scheme : {"dir:", "sqlite:"}) {
        const Folder folder;
        const Store store = open_store(uri_in(folder, scheme));
        for (const ConstraintCase &of : constraint_cases()) {
            for (const uint64_t drawn : {0, 3}) {
                CAPTURE(of.name);
                CAPTURE(drawn);
                const std::string name = of.name + std::to_string(drawn);
                const Session session = constrained(recall(), of, drawn);
                draw(session.get(), drawn);
                must_put(store.get(), session.get(), name);
                const Session got = get(store.get(), recall(), name);
                REQUIRE(digest(got.get()) == digest(session.get()));
                CHECK(told(got.get(), on_and_on(12)) == told(session.get(), on_and_on(12)));
                CHECK(digest(got.get()) == digest(session.get()));
                must_put(store.get(), got.get(), name); // what was drawn, and under what
                auto report = sized<stasis_verify_report>();
                CHECK(stasis_snapshot_verify(snapshot_of(store.get(), name).get(), recall(),
                                             nullptr, &report, nullptr) == STASIS_OK);
                CHECK(report.drawn > drawn);
                CHECK(report.drawn_otherwise == 0);
            }
        }
    }
}

TEST_CASE("stores: a put whose answer was lost is told from a stranger's by its state") {
    for (const char *scheme : {"dir:", "sqlite:"}) {
        const Folder folder;
        const Store store = open_store(uri_in(folder, scheme));
        must_put(store.get(), session_of(gemma(), some_tokens(70)).get(), "s");
        const Session before = get(store.get(), gemma(), "s");
        const Session stranger = fork(before.get());
        {
            const Session first = fork(before.get());
            append(first.get(), some_tokens(9, 2));
            must_put(store.get(), first.get(), "s"); // and the process ends here
        }
        const Session again = fork(before.get()); // the host begins anew from what it knew
        append(again.get(), some_tokens(9, 2));
        const Put refused = put(store.get(), again.get(), "s");
        CHECK(refused.status == STASIS_CONFLICT);
        CHECK(same(digest(again.get()), refused.result.state));
        const Session got = get(store.get(), gemma(), "s"); // its own: it goes on with this
        CHECK(digest(got.get()) == digest(again.get()));
        append(got.get(), some_tokens(5, 3));
        const Put next = must_put(store.get(), got.get(), "s");

        append(stranger.get(), some_tokens(9, 4));
        const Put late = put(store.get(), stranger.get(), "s");
        CHECK(late.status == STASIS_CONFLICT);
        CHECK_FALSE(same(digest(stranger.get()), late.result.state));
        CHECK(same(digest(got.get()), late.result.state));
        CHECK(std::memcmp(&late.result.root, &next.result.root, 32) == 0);
        REQUIRE(stasis_store_remove(store.get(), "s", nullptr, nullptr) == STASIS_OK);
        const Put none = put(store.get(), got.get(), "s");
        CHECK(none.status == STASIS_CONFLICT);
        CHECK(same(Digest{}, none.result.state));
    }
}

TEST_CASE("stores: forks, lists, removal and collection") {
    const Folder folder;
    const Store store = open_store(uri_in(folder));
    const Session session = session_of(gemma(), some_tokens(300));
    must_put(store.get(), session.get(), "a");
    const size_t objects = objects_in(folder).size();
    REQUIRE(stasis_store_fork(store.get(), "a", "b", nullptr, nullptr) == STASIS_OK);
    CHECK(objects_in(folder).size() == objects);
    CHECK(stasis_store_fork(store.get(), "a", "b", nullptr, nullptr) == STASIS_CONFLICT);
    CHECK(stasis_store_fork(store.get(), "x", "y", nullptr, nullptr) == STASIS_NOT_FOUND);
    CHECK(names_in(store.get()) == std::vector<std::string>{"a", "b"});
    append(session.get(), some_tokens(100, 2));
    must_put(store.get(), session.get(), "a");
    CHECK(digest(get(store.get(), gemma(), "b").get()) ==
          digest(session_of(gemma(), some_tokens(300)).get()));

    stasis_error error;
    int seen = 0;
    CHECK(stasis_store_list(
              store.get(), nullptr,
              [](void *user, const stasis_stored_session *listed) -> int32_t {
                  CHECK(listed->position == 400);
                  CHECK(std::string(listed->name) == "a");
                  *static_cast<int *>(user) += 1;
                  return 1;
              },
              &seen, &error) == STASIS_STOPPED);
    CHECK(seen == 1);

    REQUIRE(stasis_store_remove(store.get(), "a", nullptr, nullptr) == STASIS_OK);
    CHECK(stasis_store_remove(store.get(), "a", nullptr, nullptr) == STASIS_NOT_FOUND);
    const stasis_store_collected collected = collect(store.get());
    CHECK(collected.sessions == 1);
    CHECK(collected.removed_objects > 0);
    CHECK(collected.objects - collected.removed_objects == objects_in(folder).size());
    CHECK(objects_in(folder).size() == objects);
    CHECK(position(get(store.get(), gemma(), "b").get()) == 300);
}

TEST_CASE("stores: keys, values and states that are lost are computed again and put back") {
    for (const char *name : {"recall-gemma3", "zoo/qwen3_5-dense"}) {
        CAPTURE(name);
        stasis_model *model = shared_model(name);
        const Folder folder;
        const Store store = open_store(uri_in(folder));
        const Session session = session_of(model, some_tokens(300));
        must_put(store.get(), session.get(), "s");
        std::vector<std::string> objects = objects_in(folder);
        const auto is_segment = [](const std::string &object) {
            return read_file(object).compare(1, 5, "STSEG") == 0;
        };
        // The segment first: after a repair there is another.
        std::stable_partition(objects.begin(), objects.end(), is_segment);
        REQUIRE(objects.size() > 1);
        REQUIRE(is_segment(objects[0]));
        size_t computed = 0;
        for (const std::string &object : objects) {
            const std::string bytes = read_file(object);
            const bool segment = is_segment(object);
            for (const bool damaged : {false, true}) {
                if (damaged) {
                    std::string changed = bytes;
                    changed[bytes.size() / 2] ^= 1;
                    std::filesystem::permissions(object, std::filesystem::perms::owner_write,
                                                 std::filesystem::perm_options::add);
                    write_file(object, changed);
                } else {
                    std::filesystem::remove(object);
                }
                Session got;
                stasis_error error;
                // Without the right to compute it is an error that names the object.
                CHECK(try_get(store.get(), model, "s", got, error, STASIS_LOAD_NO_RECOMPUTE) ==
                      STASIS_CORRUPT);
                CHECK(contains(error, object.substr(object.size() - 62)));
                const stasis_status status = try_get(store.get(), model, "s", got, error);
                CHECK((status == STASIS_CORRUPT) == segment);
                if (segment) {
                    write_file(object, bytes);
                    continue;
                }
                REQUIRE_MESSAGE(status == STASIS_OK, error.message);
                CHECK(digest(got.get()) == digest(session.get()));
                // Under its own name, or by a fork under another.
                const std::string to = damaged ? "t" + std::to_string(computed) : "s";
                const Session forked = fork(got.get());
                must_put(store.get(), damaged ? forked.get() : got.get(), to);
                CHECK(read_file(object) == bytes);
                for (const std::string &each : {to, std::string("s")}) {
                    CHECK(try_get(store.get(), model, each, got, error, STASIS_LOAD_NO_RECOMPUTE) ==
                          STASIS_OK);
                    CHECK(digest(got.get()) == digest(session.get()));
                }
                ++computed;
            }
        }
        CHECK(computed > 4);
    }
}

TEST_CASE(
    "stores: what is exported is a file of the session, and imported again shares all of it") {
    const Folder folder;
    const Store store = open_store(uri_in(folder));
    stasis_model *model = shared_model("recall-gemma3");
    const Session session = session_of(model, some_tokens(300));
    must_put(store.get(), session.get(), "s");
    append(session.get(), some_tokens(50, 2));
    must_put(store.get(), session.get(), "s");
    const std::string file = folder.file("s.stasis");
    REQUIRE(stasis_store_export(store.get(), "s", file.c_str(), nullptr, nullptr) == STASIS_OK);
    stasis_error error;
    CHECK(stasis_store_export(store.get(), "s", file.c_str(), nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "it is there"));
    auto options = sized<stasis_store_call_options>();
    options.flags = STASIS_STORE_OVERWRITE;
    CHECK(stasis_store_export(store.get(), "s", file.c_str(), &options, &error) == STASIS_OK);
    CHECK(digest(load(model, file).get()) == digest(session.get()));

    const size_t objects = objects_in(folder).size();
    auto result = sized<stasis_store_result>();
    REQUIRE(stasis_store_import(store.get(), file.c_str(), "t", nullptr, &result, &error) ==
            STASIS_OK);
    CHECK(objects_in(folder).size() <= objects + 1); // its segment
    CHECK(result.bytes_shared > 10 * result.bytes_written);
    CHECK(same(digest(session.get()), result.state));
    CHECK(stasis_store_import(store.get(), file.c_str(), "t", nullptr, &result, &error) ==
          STASIS_CONFLICT);
    CHECK(same(digest(session.get()), result.state)); // of what is there
    const Session got = get(store.get(), model, "t");
    continue_alike(session.get(), got.get());
    CHECK(stasis_store_import(store.get(), folder.file("none").c_str(), "u", nullptr, nullptr,
                              &error) == STASIS_NOT_FOUND);
}

TEST_CASE("stores: over the functions of a host, failing one after the other") {
    HostObjects host;
    for (const bool locked : {false, true}) {
        const Store store = host.open(locked);
        const std::string name = locked ? "locked" : "free";
        const Session session = session_of(gemma(), some_tokens(80));
        must_put(store.get(), session.get(), name);
        const Digest before = digest(session.get());
        append(session.get(), some_tokens(30, 2));
        for (uint64_t call = 1;; ++call) {
            host.calls = 0;
            host.fail_at = call;
            const Put done = put(store.get(), session.get(), name);
            host.fail_at = 0;
            CHECK(host.locks == 0);
            if (done.status == STASIS_OK) {
                CHECK(host.calls < call);
                CHECK(call > 3);
                break;
            }
            CHECK(done.status == STASIS_IO);
            CHECK(contains(done.error, "it returned 13 (DEVICE)"));
            CHECK(digest(get(store.get(), gemma(), name).get()) == before);
        }
        CHECK(digest(get(store.get(), gemma(), name).get()) == digest(session.get()));
        append(session.get(), some_tokens(30, 3));
        must_put(store.get(), session.get(), name);
        REQUIRE(stasis_store_remove(store.get(), name.c_str(), nullptr, nullptr) == STASIS_OK);
        if (!locked) {
            host.now += 100;
            CHECK(collect(store.get(), 101).removed_objects == 0);
        }
        CHECK(collect(store.get(), 100).removed_objects > 0);
        CHECK(host.objects.empty());
        CHECK(host.released == (locked ? 1 : 0));
    }
    CHECK(host.released == 2);

    auto backend = host.table(true);
    backend.unlock = nullptr;
    stasis_store *store = nullptr;
    stasis_error error;
    CHECK(stasis_store_open_backend(&backend, "m", nullptr, &store, &error) ==
          STASIS_INVALID_ARGUMENT);
    backend = host.table(true);
    backend.swap = nullptr;
    CHECK(stasis_store_open_backend(&backend, "m", nullptr, &store, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "backend.swap"));
    CHECK(host.released == 2);
}

TEST_CASE("stores: threads with sessions of their own race for one name") {
    const Folder folder;
    const Store store = open_store(uri_in(folder));
    must_put(store.get(), session_of(gemma(), some_tokens(10)).get(), "s");
    std::vector<std::thread> threads;
    std::atomic<uint64_t> turns{0}, unexpected{0};
    for (uint32_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            for (uint32_t mine = 0; mine < 5;) {
                stasis_session *made = nullptr;
                if (stasis_store_get(store.get(), gemma(), "s", nullptr, &made, nullptr) !=
                    STASIS_OK) {
                    ++unexpected;
                    return;
                }
                const Session session(made);
                const stasis_token token = i;
                stasis_session_append(made, &token, 1, nullptr, nullptr);
                const stasis_status status =
                    stasis_store_put(store.get(), made, "s", nullptr, nullptr, nullptr);
                mine += status == STASIS_OK ? 1 : 0;
                turns += status == STASIS_OK ? 1 : 0;
                unexpected += status == STASIS_OK || status == STASIS_CONFLICT ? 0 : 1;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(unexpected == 0);
    CHECK(turns == 20);
    CHECK(position(get(store.get(), gemma(), "s").get()) == 30);
}

TEST_CASE("stores: what is refused, and why") {
    const Folder folder;
    stasis_store *made = nullptr;
    stasis_error error;
    const auto opening = [&](const std::string &uri, uint32_t flags = 0) {
        auto options = sized<stasis_store_options>();
        options.flags = flags;
        return stasis_store_open(uri.c_str(), &options, &made, &error);
    };
    CHECK(opening("ftp:somewhere") == STASIS_UNSUPPORTED);
    CHECK(contains(error, "'ftp'"));
    CHECK(opening("somewhere") == STASIS_INVALID_ARGUMENT);
    CHECK(opening("dir:") == STASIS_INVALID_ARGUMENT);
    CHECK(opening("") == STASIS_INVALID_ARGUMENT);
    write_file(folder.file("file"), "x");
    CHECK(opening("dir:" + folder.file("file")) == STASIS_INVALID_ARGUMENT);
    CHECK(opening(uri_in(folder), STASIS_STORE_EXISTING) == STASIS_NOT_FOUND);
    CHECK(!std::filesystem::exists(folder.file("store")));
    CHECK(opening(uri_in(folder), 8) == STASIS_UNSUPPORTED);
    const Store store = open_store(uri_in(folder));
    REQUIRE(opening(uri_in(folder), STASIS_STORE_EXISTING) == STASIS_OK);
    stasis_store_close(made);

    const Session session = session_of(gemma(), some_tokens(20));
    CHECK(put(store.get(), session.get(), "").status == STASIS_INVALID_ARGUMENT);
    CHECK(put(store.get(), session.get(), "\xFF").status == STASIS_INVALID_ARGUMENT);
    CHECK(put(store.get(), session.get(), std::string(256, 'x')).status == STASIS_INVALID_ARGUMENT);
    CHECK(put(store.get(), session.get(), "s", 16).status == STASIS_UNSUPPORTED);
    CHECK(put(store.get(), session.get(), "s", 0, 7).status == STASIS_UNSUPPORTED);
    CHECK(put(store.get(), session.get(), "s", 0, 0, 7).status == STASIS_UNSUPPORTED);
    CHECK(names_in(store.get()).empty());
    must_put(store.get(), session.get(), "s", STASIS_STORE_FULL_LOGITS);
    Session got;
    CHECK(try_get(store.get(), gemma(), "none", got, error) == STASIS_NOT_FOUND);
    CHECK(try_get(store.get(), llama(), "s", got, error) == STASIS_MODEL_MISMATCH);
    CHECK(stasis_store_put(store.get(), session.get(), nullptr, nullptr, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    auto options = sized<stasis_store_call_options>();
    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    options.cancel = cancel.get();
    append(session.get(), some_tokens(5, 2));
    CHECK(stasis_store_put(store.get(), session.get(), "s", &options, nullptr, &error) ==
          STASIS_CANCELLED);
    CHECK(position(get(store.get(), gemma(), "s").get()) == 20);
    CHECK(stasis_store_collect(store.get(), &options, nullptr, &error) == STASIS_CANCELLED);
    stasis_store_close(nullptr);
}
