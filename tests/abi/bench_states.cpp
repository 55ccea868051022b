// A long session of a model with recurrent layers: how long loading, forking, committing and
// rewinding take, and whether the states are bit-equal to those of a session that never went there:
//     bench_states MODEL [TOKENS]
// The file is written to the current folder, and removed. 15000 tokens by default.
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "abi/stasis.h"
#include "abi/stasis_snapshot.h"

namespace {

constexpr char kFile[] = "bench_states.stasis";
constexpr uint64_t kMore = 60; // tokens between two commits

stasis_error error;

void check(stasis_status status, const char *what) {
    if (status != STASIS_OK) {
        std::fprintf(stderr, "bench_states: %s: %s\n", what, error.message);
        std::exit(1);
    }
}

struct Free {
    void operator()(stasis_session *session) const { stasis_session_free(session); }
    void operator()(stasis_model *model) const { stasis_model_close(model); }
};
using Session = std::unique_ptr<stasis_session, Free>;
using Model = std::unique_ptr<stasis_model, Free>;

template <typename Work> double seconds(const Work &work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Session created(stasis_model *model) {
    stasis_session_options options;
    stasis_session_options_init(&options, sizeof options);
    options.domain = STASIS_DOMAIN_PRIVATE; // nothing is shared with the others
    stasis_session *session = nullptr;
    check(stasis_session_create(model, &options, &session, &error), "create");
    return Session(session);
}

Session forked(stasis_session *session) {
    stasis_session *child = nullptr;
    check(stasis_session_fork(session, &child, &error), "fork");
    return Session(child);
}

Session loaded(stasis_model *model) {
    stasis_session *session = nullptr;
    check(stasis_session_load(model, kFile, nullptr, &session, &error), "load");
    return Session(session);
}

void append(stasis_session *session, std::span<const stasis_token> tokens) {
    check(stasis_session_append(session, tokens.data(), tokens.size(), nullptr, &error), "append");
}

stasis_digest digest_of(stasis_session *session) {
    stasis_digest digest;
    check(stasis_session_digest(session, &digest, &error), "digest");
    return digest;
}

stasis_session_info info_of(stasis_session *session) {
    stasis_session_info info{};
    info.struct_size = sizeof info;
    check(stasis_session_get_info(session, &info, &error), "info");
    return info;
}

bool same(const stasis_digest &a, const stasis_digest &b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

double file_bytes() {
    struct stat status {};
    return stat(kFile, &status) == 0 ? static_cast<double>(status.st_size) : 0;
}

// Saves, and saves once more after a few tokens.
void commit(stasis_session *session, std::span<const stasis_token> more, double state_bytes) {
    const auto save = [&] { check(stasis_session_save(session, kFile, nullptr, &error), "save"); };
    const double first = seconds(save), before = file_bytes();
    std::printf("save: %.0f MB in %.2f s\n", before / 1e6, first);
    const double kv = static_cast<double>(info_of(session).kv_bytes);
    const auto position = static_cast<double>(info_of(session).position);
    append(session, more);
    const double second = seconds(save), written = file_bytes() - before;
    const double kv_more = kv / position * static_cast<double>(more.size());
    std::printf("commit of %zu tokens: %.0f bytes in %.3f s: %.0f more than a state and %.0f of "
                "keys and values\n",
                more.size(), written, second, written - state_bytes - kv_more, kv_more);
}

// Rewinds forks, and compares them with a session that is only appended to.
bool rewind(stasis_model *model, stasis_session *session, std::span<const stasis_token> tokens) {
    const Session straight = created(model);
    uint64_t done = 0;
    bool equal = true;
    for (const uint64_t back : {tokens.size() / 2, size_t{1000}, size_t{100}, size_t{1}}) {
        const uint64_t to = tokens.size() - back;
        const Session child = forked(session);
        stasis_digest found;
        const double taken = seconds([&] {
            check(stasis_session_rewind(child.get(), to, 0, nullptr, &error), "rewind");
            found = digest_of(child.get());
        });
        append(straight.get(), tokens.subspan(done, to - done));
        done = to;
        const bool right = same(found, digest_of(straight.get()));
        std::printf("rewind by %llu, to a state: %.2f s, %s\n",
                    static_cast<unsigned long long>(back), taken, right ? "equal" : "DIFFERENT");
        equal = equal && right;
    }
    return equal;
}

} // namespace

int main(int count, char **arguments) {
    if (count < 2 || count > 3) {
        std::fprintf(stderr, "usage: bench_states MODEL [TOKENS]\n");
        return 2;
    }
    const uint64_t length = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 15000;
    if (length < 2000) {
        std::fprintf(stderr, "bench_states: TOKENS: expected 2000 or more\n");
        return 2;
    }
    stasis_model *opened = nullptr;
    check(stasis_model_open(arguments[1], nullptr, &opened, &error), "open");
    const Model model(opened);
    stasis_model_info model_info{};
    model_info.struct_size = sizeof model_info;
    check(stasis_model_get_info(opened, &model_info, &error), "info");
    if (model_info.state_bytes == 0) {
        std::fprintf(stderr, "bench_states: %s has no recurrent layers\n", arguments[1]);
        return 2;
    }
    std::vector<stasis_token> tokens(length + kMore);
    for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = static_cast<stasis_token>(i * 2654435761U % model_info.vocabulary);
    }
    const std::span<const stasis_token> all(tokens);

    Session session = created(opened);
    const double taken = seconds([&] { append(session.get(), all.first(length)); });
    std::printf("append of %llu tokens: %.0f tokens/s; a state has %.1f MB, %llu are held\n",
                static_cast<unsigned long long>(length), static_cast<double>(length) / taken,
                static_cast<double>(model_info.state_bytes) / 1e6,
                static_cast<unsigned long long>(info_of(session.get()).states));
    std::remove(kFile);
    commit(session.get(), all.last(kMore), static_cast<double>(model_info.state_bytes));
    const stasis_digest saved = digest_of(session.get());
    session.reset(); // so that the budget of states is the loaded session's alone

    Session back;
    bool equal = true;
    for (int i = 0; i < 3; ++i) {
        back.reset();
        const double load = seconds([&] { back = loaded(opened); });
        const double digest = seconds([&] { equal = equal && same(saved, digest_of(back.get())); });
        std::printf("load: %.0f MB in %.3f s, digest in %.4f s, %s\n", file_bytes() / 1e6, load,
                    digest, equal ? "equal" : "DIFFERENT");
    }
    const double forks = seconds([&] {
        for (int i = 0; i < 1000; ++i) {
            forked(back.get());
        }
    });
    std::printf("fork and free: %.1f us\n", forks * 1e3);
    equal = rewind(opened, back.get(), all) && equal;
    std::remove(kFile);
    return equal ? 0 : 1;
}
