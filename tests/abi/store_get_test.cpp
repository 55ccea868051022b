// Getting sessions from stores: what a get found damaged, the next put mends.
#include <cstddef>

#include "tests/abi/restored.h"
#include "tests/abi/stored.h"

using namespace abi_test;

namespace {

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
