// Getting sessions: pages in memory that need not be read, and what a get found damaged, which the
// next put mends.
#include <cstddef>

#include "tests/abi/restored.h"
#include "tests/abi/stored.h"

using namespace abi_test;

namespace {

const char *const kGetModels[] = {"recall-llama", "recall-gemma3"};

stasis_status load_in(uint64_t domain, stasis_model *model, const std::string &path, uint32_t flags,
                      Session &session) {
    auto own = sized<stasis_session_options>();
    own.domain = domain;
    auto options = sized<stasis_load_options>();
    options.flags = flags;
    options.session = &own;
    stasis_session *made = nullptr;
    const stasis_status status = stasis_session_load(model, path.c_str(), &options, &made, nullptr);
    session.reset(made);
    return status;
}

std::vector<std::string> keys_in(const HostObjects &host, const std::string &prefix) {
    std::vector<std::string> keys;
    for (const auto &[key, object] : host.objects) {
        if (key.starts_with(prefix)) {
            keys.push_back(key);
        }
    }
    return keys;
}

void flip(HostObjects &host, const std::string &key) {
    std::string &bytes = host.objects.at(key).bytes;
    bytes = flipped(bytes, bytes.size() / 2);
}

} // namespace

TEST_CASE("STASIS_LOAD_SKIP_KNOWN: what is not read is not used, and all else is checked") {
    for (const char *name : kGetModels) {
        CAPTURE(name);
        const Folder folder;
        const std::string path = folder.file("a"), damaged = folder.file("damaged");
        const Session saved = session_of(shared_model(name), some_tokens(300));
        REQUIRE(save(saved.get(), path) == STASIS_OK);
        const std::string bytes = read_file(path);
        const Model model = open_path(test_data(name));
        const Session known = load(model.get(), path); // whose full pages are known from here on
        size_t skipped = 0, refused = 0;
        for (size_t at = 0; at < bytes.size(); at += bytes.size() / 150) {
            CAPTURE(at);
            write_file(damaged, flipped(bytes, at));
            Session session;
            const auto status_in = [&](uint64_t domain, uint32_t flags) {
                return load_in(domain, model.get(), damaged, flags, session);
            };
            const stasis_status plain = status_in(STASIS_DOMAIN_COMMON, 0);
            // A session that shares with none has nothing that it could skip.
            CHECK(status_in(STASIS_DOMAIN_PRIVATE, STASIS_LOAD_SKIP_KNOWN) == plain);
            const stasis_status status = status_in(STASIS_DOMAIN_COMMON, STASIS_LOAD_SKIP_KNOWN);
            CHECK((status == STASIS_OK || status == plain));
            skipped += status != plain ? 1 : 0;
            refused += status != STASIS_OK ? 1 : 0;
            if (status == STASIS_OK) {
                CHECK(digest(session.get()) == digest(saved.get()));
                CHECK(info_of(session).tokens_reused >= 256);
            }
        }
        CHECK(skipped > 10);
        CHECK(refused > 10);
        Session session;
        REQUIRE(load_in(STASIS_DOMAIN_COMMON, model.get(), path, STASIS_LOAD_SKIP_KNOWN, session) ==
                STASIS_OK);
        const Session alone = fork(saved.get());
        for (stasis_session *each : {session.get(), alone.get()}) {
            append(each, some_tokens(70, 5));
        }
        CHECK(draw(session.get(), 5) == draw(alone.get(), 5));
        CHECK(digest(session.get()) == digest(alone.get()));
    }
}

TEST_CASE("stasis_store_get: STASIS_LOAD_SKIP_KNOWN asks the store for no page in memory") {
    for (const char *name : kGetModels) {
        CAPTURE(name);
        HostObjects host;
        const Store store = host.open(true);
        const Model model = open_path(test_data(name));
        const Session put_there = session_of(shared_model(name), some_tokens(400));
        must_put(store.get(), put_there.get(), "s");
        const auto calls_of = [&](uint32_t flags, Session &session) {
            stasis_error error;
            host.calls = 0;
            REQUIRE(try_get(store.get(), model.get(), "s", session, error, flags) == STASIS_OK);
            CHECK(digest(session.get()) == digest(put_there.get()));
            return host.calls;
        };
        Session first, whole, skipping;
        const uint64_t cold = calls_of(STASIS_LOAD_SKIP_KNOWN, first);
        const uint64_t all = calls_of(0, whole);
        const uint64_t some = calls_of(STASIS_LOAD_SKIP_KNOWN, skipping);
        CHECK(cold == all);
        CHECK(all >= some + 6); // full pages of 64 positions

        // Damage in what is not read is not met, and any other is.
        uint64_t unmet = 0;
        for (const std::string &key : keys_in(host, "objects/")) {
            CAPTURE(key);
            flip(host, key);
            const auto status_with = [&](uint32_t flags) {
                Session session;
                stasis_error error;
                return try_get(store.get(), model.get(), "s", session, error,
                               flags | STASIS_LOAD_NO_RECOMPUTE);
            };
            CHECK(status_with(0) == STASIS_CORRUPT);
            unmet += status_with(STASIS_LOAD_SKIP_KNOWN) == STASIS_OK ? 1 : 0;
            flip(host, key);
        }
        CHECK(unmet == all - some);

        // It goes on, and is put for those that have nothing in memory.
        append(skipping.get(), some_tokens(30, 2));
        append(whole.get(), some_tokens(30, 2));
        must_put(store.get(), skipping.get(), "s");
        const Model other = open_path(test_data(name));
        CHECK(digest(get(store.get(), other.get(), "s").get()) == digest(whole.get()));
    }
}

TEST_CASE("stasis_store_put: what a get found damaged is replaced, and is missing at no time") {
    for (const bool replaces : {true, false}) {
        CAPTURE(replaces);
        HostObjects host;
        host.replaces = replaces;
        stasis_store_backend backend = host.table(true);
        if (!replaces) { // of a host that knows nothing of it
            backend.replace = host_replace;
            backend.struct_size = offsetof(stasis_store_backend, replace);
        }
        stasis_store *opened = nullptr;
        REQUIRE(stasis_store_open_backend(&backend, "memory", nullptr, &opened, nullptr) ==
                STASIS_OK);
        const Store store(opened);
        stasis_model *const model = shared_model("recall-llama");
        must_put(store.get(), session_of(model, some_tokens(200)).get(), "s");
        REQUIRE(stasis_store_fork(store.get(), "s", "other", nullptr, nullptr) == STASIS_OK);
        const std::vector<std::string> keys = keys_in(host, "objects/");
        std::string payload;
        for (const std::string &key : keys) {
            if (host.objects.at(key).bytes.compare(1, 5, "STSEG") != 0) {
                payload = key;
            }
        }
        const std::string whole = host.objects.at(payload).bytes;
        flip(host, payload);
        const Session got = get(store.get(), model, "s"); // computed again
        uint64_t call = 1;
        for (Put done;; ++call) {
            CAPTURE(call);
            host.calls = 0;
            host.fail_at = call;
            done = put(store.get(), got.get(), "s");
            host.fail_at = 0;
            if (replaces) {
                REQUIRE(host.objects.count(payload) == 1);
            }
            if (done.status == STASIS_OK) {
                break;
            }
            CHECK(done.status == STASIS_IO);
        }
        CHECK(call > 5);
        CHECK(host.objects.at(payload).bytes == whole);
        CHECK(host.replaced == (replaces ? 1 : 0));
        CHECK(host.removed == (replaces ? 0 : 1));
        for (const char *name : {"s", "other"}) {
            Session session;
            stasis_error error;
            CHECK(try_get(store.get(), model, name, session, error, STASIS_LOAD_NO_RECOMPUTE) ==
                  STASIS_OK);
        }
    }
}
