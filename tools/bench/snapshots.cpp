// See snapshots.h.
#include "tools/bench/snapshots.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tools/bench/ceilings/files.h"
#include "tools/bench/series.h"
#include "tools/cli/generation.h"

namespace command::bench {

namespace {

constexpr uint64_t kPositions = 4096; // of the session that is saved, if they fit

// A folder in the place for temporary files that is gone with it.
struct TemporaryFolder {
    std::string path = (std::filesystem::temp_directory_path() / "stasis-bench-XXXXXX").string();

    TemporaryFolder() {
        if (mkdtemp(path.data()) == nullptr) {
            throw Failure(path + ": " + std::strerror(errno));
        }
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;

    std::string file(const char *name) const { return path + "/" + name; }
};

// `depth` 0: what is usual.
uint64_t positions_of(const Bench &bench, uint64_t depth) {
    return depth != 0 ? depth : std::min(kPositions, bench.info.context);
}

double bytes_of(const std::string &path) {
    return static_cast<double>(std::filesystem::file_size(path));
}

double kv_bytes_of(const std::string &path) {
    return static_cast<double>(snapshot_info(open_snapshot(path).get(), path).kv_bytes);
}

// The rate of `bytes` in the seconds that `plain` takes, told to the meter.
Against plainly(const Bench &bench, const char *ceiling, const char *how, double bytes,
                const std::function<double()> &plain) {
    return {ceiling, [=, &meter = bench.meter] {
                const double rate = bytes / plain();
                meter.saw({ceiling, rate, "B", how});
                return rate;
            }};
}

Series save_series(Bench &bench, const std::string &name, const Against &against,
                   const Session &session, const std::string &path, uint32_t codec) {
    return repeat(bench, name, against, [&](bool) {
        const Stopwatch watch;
        save_session(session.get(), path, {true, codec, STASIS_KEEP_FULL});
        return watch.seconds();
    });
}

Series load_series(Bench &bench, const std::string &name, const Against &against,
                   const std::string &path) {
    return repeat(bench, name, against, [&](bool) {
        const Stopwatch watch;
        const Session session = load_session(bench.model, path, bench.cancel, {.alone = true});
        return watch.seconds();
    });
}

void add_seconds(Bench &bench, const std::string &name, Series series, double bytes) {
    for (double &value : series.values) {
        value *= kMilli;
    }
    add_time(bench, name, series, Work::bytes, bytes);
}

// Keys and values a second.
void add_kv_rate(Bench &bench, const std::string &name, const Series &series, double kv_bytes) {
    std::vector<double> rates;
    for (const double seconds : series.values) {
        rates.push_back(kv_bytes / seconds / 1e9);
    }
    add(bench, name, rates, "GB/s of KV");
}

// Asks for what a save would compute otherwise: logits and digest.
void know(const Session &session) {
    stasis_token token = 0;
    float logprob = 0;
    check(stasis_session_top(session.get(), 1, &token, &logprob, nullptr), {}, "logits");
    stasis_digest digest{};
    check(stasis_session_digest(session.get(), &digest, nullptr), {}, "digest");
}

struct Saved {
    Saved(Bench &bench, uint32_t codec, uint64_t positions)
        : session(live_at(bench, positions)), path(folder.file("session.stasis")) {
        save_session(session.get(), path, {true, codec, STASIS_KEEP_FULL});
    }
    TemporaryFolder folder;
    const Session &session;
    std::string path;
};

} // namespace

void snapshot_save(Bench &bench, const std::string &name, uint64_t depth) {
    const Saved saved(bench, STASIS_CODEC_RAW, positions_of(bench, depth));
    const double bytes = bytes_of(saved.path);
    const Against against =
        plainly(bench, "file_new", "a file of the same size, written, synced, renamed", bytes, [&] {
            return ceilings::write_new_seconds(saved.folder.path, bench.meter.memory(),
                                               static_cast<size_t>(bytes));
        });
    add_seconds(bench, name,
                save_series(bench, name, against, saved.session, saved.path, STASIS_CODEC_RAW),
                bytes);
}

void snapshot_load(Bench &bench, const std::string &name, uint64_t depth) {
    const Saved saved(bench, STASIS_CODEC_RAW, positions_of(bench, depth));
    const double bytes = bytes_of(saved.path);
    const Against against = plainly(bench, "file_sha256",
                                    "the same file, read into warm memory and hashed", bytes, [&] {
                                        return ceilings::read_and_hash_seconds(
                                            saved.path, bench.meter.memory(), bench.info.threads);
                                    });
    add_seconds(bench, name, load_series(bench, name, against, saved.path), bytes);
}

void snapshot_save_zstd(Bench &bench, const std::string &name, uint64_t depth) {
    const Saved saved(bench, STASIS_CODEC_ZSTD, positions_of(bench, depth));
    const Series series =
        save_series(bench, name, {}, saved.session, saved.path, STASIS_CODEC_ZSTD);
    add_kv_rate(bench, name, series, kv_bytes_of(saved.path));
}

void snapshot_load_zstd(Bench &bench, const std::string &name, uint64_t depth) {
    const Saved saved(bench, STASIS_CODEC_ZSTD, positions_of(bench, depth));
    add_kv_rate(bench, name, load_series(bench, name, {}, saved.path), kv_bytes_of(saved.path));
}

// Turn after turn into a file of `depth` positions; where they no longer fit, from there again.
void snapshot_commit(Bench &bench, const std::string &name, uint64_t depth) {
    const TemporaryFolder folder;
    const std::string path = folder.file("session.stasis");
    Session session = fork(live_at(bench, depth));
    save_session(session.get(), path, {});
    const auto commit = [&](bool) {
        if (position_of(session.get()) + kTurn > std::min(depth + kTurns, bench.info.context)) {
            session = fork(live_at(bench, depth));
        }
        append(bench, session, position_of(session.get()), kTurn);
        know(session); // else the figure would be the model's
        const Stopwatch watch;
        save_session(session.get(), path, {});
        return watch.seconds();
    };
    const double before = bytes_of(path);
    commit(true);
    const double bytes = bytes_of(path) - before;
    const ceilings::GrowingFile plain(folder.path, bench.meter.memory(),
                                      static_cast<size_t>(bytes));
    const Against against =
        plainly(bench, "file_append", "as many bytes and a block, written with the same syncs",
                bytes, [&] { return plain.append_seconds(); });
    add_seconds(bench, name, repeat(bench, name, against, commit), bytes);
}

// What one more token takes: the difference between a session and one half as long.
void snapshot_bytes(Bench &bench, const std::string &, uint64_t) {
    const TemporaryFolder folder;
    const uint64_t long_one = positions_of(bench, 0), short_one = long_one / 2;
    const std::string path = folder.file("session.stasis");
    const struct {
        const char *name;
        SaveChoice choice;
    } kinds[] = {{"bytes_raw", {true, STASIS_CODEC_RAW, STASIS_KEEP_FULL}},
                 {"bytes_zstd", {true, STASIS_CODEC_ZSTD, STASIS_KEEP_FULL}},
                 {"bytes_none", {true, STASIS_CODEC_RAW, STASIS_KEEP_NONE}}};
    for (const auto &kind : kinds) {
        save_session(live_at(bench, short_one).get(), path, kind.choice);
        const double before = bytes_of(path);
        save_session(live_at(bench, long_one).get(), path, kind.choice);
        const double added = bytes_of(path) - before;
        add(bench, kind.name, {added / static_cast<double>(long_one - short_one)}, "bytes/token");
    }
}

} // namespace command::bench
