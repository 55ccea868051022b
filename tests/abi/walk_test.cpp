// A long random walk through the public interface, against a plain model in memory of every session
// and every file: tokens, their sources, the settings in force. The state that a list of tokens
// must give comes from a fresh session that has seen nothing else. STASIS_SEED repeats a walk,
// STASIS_WALK_SECONDS bounds it (120), STASIS_WALK_STEPS sets its length (10000). Not under the
// thread sanitizer, which cannot follow a process that forks while it has threads.
#include "tests/sanitizers.h"

#ifndef STASIS_THREAD_SANITIZER

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>

#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/abi/conversation.h"
#include "tests/runtime/quantized_model.h"
#include "tests/share.h"

using namespace abi_test;
using stasis::test::from_environment;

namespace {

constexpr uint64_t kPositionsMax = 140; // several pages; local layers release some of theirs
constexpr size_t kSessions = 4;
constexpr size_t kFiles = 3;
constexpr uint32_t kSettingsCount = 4;
constexpr uint32_t kSeedStep = 1000;
const stasis_token kForbidden[2] = {3, 5};
const float kBias[2] = {-INFINITY, 1.5F};

stasis_sampling settings(uint32_t number) {
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = number == 0 ? 0.0F : 0.5F * static_cast<float>(number);
    sampling.top_k = number == 2 ? 20 : 0;
    sampling.top_p = number == 3 ? 0.9F : 1.0F;
    sampling.repetition_penalty = number == 3 ? 1.2F : 1.0F;
    sampling.seed = number * kSeedStep;
    sampling.bias_count = number == 2 ? 2 : 0;
    sampling.bias_tokens = kForbidden;
    sampling.bias = kBias;
    return sampling;
}

// A session in the model.
struct SessionModel {
    Tokens tokens = {};
    std::vector<uint8_t> sources = {};
    uint32_t settings = 0;
    std::optional<Tokens> stored = {}; // what it, or what it was forked from, last loaded or saved
};

// The state that a list of tokens gives.
struct Outcome {
    Digest digest;
    stasis_token drawn[kSettingsCount] = {};
};

const Outcome &outcome_of(stasis_model *model, const Tokens &tokens) {
    static std::map<Tokens, Outcome> known; // a process walks once
    const auto found = known.find(tokens);
    if (found != known.end()) {
        return found->second;
    }
    const Session fresh = create(model, kPositionsMax);
    append(fresh.get(), tokens);
    Outcome outcome;
    outcome.digest = digest(fresh.get());
    for (uint32_t i = 0; i < kSettingsCount && !tokens.empty(); ++i) {
        const stasis_sampling sampling = settings(i);
        REQUIRE(stasis_session_set_sampling(fresh.get(), &sampling, nullptr) == STASIS_OK);
        REQUIRE(stasis_session_sample(fresh.get(), &outcome.drawn[i], nullptr) == STASIS_OK);
    }
    return known.emplace(tokens, outcome).first->second;
}

// Some layers have a window, or all of them; or weights are integers of all types.
stasis_model *model_of(uint64_t seed) {
    if (seed % 3 == 0) {
        static auto &opened =
            *new Model(open_path(stasis::test::quantized_model("quantized/llama")));
        return opened.get(); // never destroyed, as shared_model's
    }
    return seed % 3 == 1 ? gemma() : shared_model("zoo/mistral-window");
}

struct FileWalk {
    explicit FileWalk(uint64_t seed) : model(model_of(seed)), dice(seed) {
        for (size_t i = 0; i < kSessions; ++i) {
            sessions.push_back(create(model, kPositionsMax));
        }
    }

    stasis_model *model;
    std::mt19937_64 dice;
    Folder folder = {};
    std::vector<Session> sessions = {};
    SessionModel lines[kSessions] = {};
    std::optional<SessionModel> files[kFiles] = {};
    std::map<std::string, size_t> counts = {};

    uint64_t roll(uint64_t below) { return dice() % below; }
    std::string path(size_t file) const { return folder.file("s" + std::to_string(file)); }

    void check_session(size_t i);
    bool file_is(size_t file, const SessionModel &line);
    void step();
    void append_some(size_t i);
    void decode(size_t i);
    void rewind(size_t i);
    void fork_to(size_t i);
    void set(size_t i);
    bool may_save(size_t i, size_t file, uint32_t flags);
    stasis_status save_expected(size_t i, size_t file, uint32_t flags);
    void save_to(size_t i);
    void save_killed(size_t i);
    void load_from(size_t i);
    stasis_save_options save_options(uint32_t flags);
    void compact_one(size_t i);
};

void FileWalk::check_session(size_t i) {
    const SessionModel &line = lines[i];
    const stasis_session *session = sessions[i].get();
    REQUIRE(position(session) == line.tokens.size());
    std::vector<uint8_t> sources;
    REQUIRE(tokens_from(session, 0, &sources) == line.tokens);
    REQUIRE(sources == line.sources);
    REQUIRE(digest(session) == outcome_of(model, line.tokens).digest);
    stasis_token drawn = 0;
    const stasis_status status = stasis_session_sample(session, &drawn, nullptr);
    REQUIRE(status == (line.tokens.empty() ? STASIS_NOT_FOUND : STASIS_OK));
    if (status == STASIS_OK) {
        REQUIRE(drawn == outcome_of(model, line.tokens).drawn[line.settings]);
    }
}

// Identifies the settings in force by their seed, which nothing else has.
uint32_t settings_in(const stasis_snapshot *snapshot) {
    std::string text(1 << 16, '\0');
    size_t length = 0;
    REQUIRE(stasis_snapshot_element(snapshot, 6, text.data(), text.size(), &length, nullptr) ==
            STASIS_OK);
    const auto element = nlohmann::json::parse(text.substr(0, length));
    const size_t in_force = element["sampling"];
    return element["samplings"][in_force]["seed"].get<uint32_t>() / kSeedStep;
}

bool FileWalk::file_is(size_t file, const SessionModel &line) {
    const Snapshot snapshot = open_snapshot(path(file));
    auto info = sized<stasis_snapshot_info>();
    REQUIRE(stasis_snapshot_get_info(snapshot.get(), &info, nullptr) == STASIS_OK);
    if (info.position != line.tokens.size() || settings_in(snapshot.get()) != line.settings) {
        return false;
    }
    Tokens tokens(info.position);
    std::vector<uint8_t> sources(info.position);
    size_t count = 0;
    REQUIRE(stasis_snapshot_tokens(snapshot.get(), 0, tokens.data(), sources.data(), tokens.size(),
                                   &count, nullptr) == STASIS_OK);
    return tokens == line.tokens && sources == line.sources &&
           std::memcmp(info.digest.bytes, outcome_of(model, tokens).digest.data(), 32) == 0;
}

void FileWalk::append_some(size_t i) {
    SessionModel &line = lines[i];
    // Tokens of a few stories, so that sessions and files often share a beginning.
    const uint64_t story = roll(3), odd = roll(40) == 0 ? 1 : 0;
    Tokens added;
    for (uint64_t count = 1 + roll(24); added.size() < count;) {
        const uint64_t at = line.tokens.size() + added.size();
        const uint64_t seed = at == 0 ? odd : story * 1000 + at;
        added.push_back(static_cast<stasis_token>(seed * 2654435761 % 4294967291 % 192));
    }
    if (line.tokens.size() + added.size() > kPositionsMax) {
        REQUIRE(stasis_session_append(sessions[i].get(), added.data(), added.size(), nullptr,
                                      nullptr) == STASIS_FULL);
        rewind(i); // else all of them end full
        return;
    }
    append(sessions[i].get(), added);
    line.tokens.insert(line.tokens.end(), added.begin(), added.end());
    line.sources.resize(line.tokens.size(), STASIS_SOURCE_PROMPT);
}

void FileWalk::decode(size_t i) {
    SessionModel &line = lines[i];
    stasis_token token = 0;
    const stasis_status status = stasis_session_decode(sessions[i].get(), &token, nullptr);
    if (line.tokens.empty() || line.tokens.size() == kPositionsMax) {
        REQUIRE(status == (line.tokens.empty() ? STASIS_NOT_FOUND : STASIS_FULL));
        rewind(i);
        return;
    }
    REQUIRE(status == STASIS_OK);
    REQUIRE(token == outcome_of(model, line.tokens).drawn[line.settings]);
    line.tokens.push_back(token);
    line.sources.push_back(STASIS_SOURCE_SAMPLED);
}

void FileWalk::rewind(size_t i) {
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(sessions[i].get(), &info, nullptr) == STASIS_OK);
    SessionModel &line = lines[i];
    const uint64_t far = roll(3) == 0 ? line.tokens.size() : 30;
    const uint64_t to = line.tokens.size() - roll(std::min<uint64_t>(far, line.tokens.size()) + 1);
    const uint32_t flags = roll(2) == 0 ? STASIS_REWIND_RECOMPUTE : 0;
    const stasis_status status =
        stasis_session_rewind(sessions[i].get(), to, flags, nullptr, nullptr);
    if (to > 0 && to < info.rewind_floor && flags == 0) {
        REQUIRE(status == STASIS_UNSUPPORTED);
        return;
    }
    REQUIRE(status == STASIS_OK);
    line.tokens.resize(to);
    line.sources.resize(to);
}

void FileWalk::fork_to(size_t i) {
    const size_t child = roll(kSessions);
    sessions[child] = fork(sessions[i].get());
    lines[child] = lines[i];
    check_session(child);
}

void FileWalk::set(size_t i) {
    lines[i].settings = static_cast<uint32_t>(roll(kSettingsCount));
    const stasis_sampling sampling = settings(lines[i].settings);
    REQUIRE(stasis_session_set_sampling(sessions[i].get(), &sampling, nullptr) == STASIS_OK);
}

bool FileWalk::may_save(size_t i, size_t file, uint32_t flags) {
    return flags == STASIS_SAVE_REPLACE || !files[file] || files[file]->tokens.empty() ||
           lines[i].tokens.empty() || files[file]->tokens[0] == lines[i].tokens[0];
}

stasis_status FileWalk::save_expected(size_t i, size_t file, uint32_t flags) {
    if (!may_save(i, file, flags)) {
        return STASIS_INVALID_ARGUMENT;
    }
    const bool others = flags == STASIS_SAVE_IF_MATCH && files[file] &&
                        !files[file]->tokens.empty() && lines[i].stored != files[file]->tokens;
    return others ? STASIS_CONFLICT : STASIS_OK;
}

// Any codec, and one save of four without keys and values.
stasis_save_options FileWalk::save_options(uint32_t flags) {
    auto options = sized<stasis_save_options>();
    options.flags = flags;
    options.codec = static_cast<uint32_t>(roll(STASIS_CODEC_ZSTD + 1));
    options.keep = roll(4) == 0 ? STASIS_KEEP_NONE : STASIS_KEEP_FULL;
    return options;
}

void FileWalk::save_to(size_t i) {
    const size_t file = roll(kFiles);
    const uint64_t kind = roll(20);
    const auto options = save_options(kind == 0  ? STASIS_SAVE_REPLACE
                                      : kind < 8 ? STASIS_SAVE_IF_MATCH
                                                 : 0);
    stasis_error error;
    const stasis_status status =
        stasis_session_save(sessions[i].get(), path(file).c_str(), &options, &error);
    CAPTURE(error.message);
    REQUIRE(status == save_expected(i, file, options.flags));
    counts["  save, status " + std::to_string(status)]++;
    if (status == STASIS_OK) {
        lines[i].stored = lines[i].tokens;
        files[file] = lines[i];
    }
    if (files[file]) {
        REQUIRE(file_is(file, *files[file]));
    }
}

// A save, or a compaction, in a process that is killed in the midst of it: by the parent, or by the
// system where it writes beyond some byte of the file.
void FileWalk::save_killed(size_t i) {
    const size_t file = roll(kFiles);
    const uint64_t bytes = roll(400000), delay = roll(3000);
    const bool by_byte = roll(2) == 0, compacting = files[file] && roll(4) == 0;
    const auto options = save_options(0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit limit{bytes, bytes}, no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        std::signal(SIGXFSZ, SIG_DFL);
        if (by_byte) {
            setrlimit(RLIMIT_FSIZE, &limit);
        }
        _exit(compacting
                  ? stasis_snapshot_compact(path(file).c_str(), nullptr, nullptr)
                  : stasis_session_save(sessions[i].get(), path(file).c_str(), &options, nullptr));
    }
    if (!by_byte) {
        usleep(static_cast<useconds_t>(delay));
        kill(child, SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    const bool may = !compacting && may_save(i, file, 0);
    if (WIFEXITED(status)) {
        const bool good = may || compacting;
        REQUIRE(WEXITSTATUS(status) == (good ? STASIS_OK : STASIS_INVALID_ARGUMENT));
    }
    const bool exists = std::filesystem::exists(path(file));
    REQUIRE((exists || !files[file]));
    const bool changed = exists && may && file_is(file, lines[i]);
    REQUIRE((changed || !WIFEXITED(status) || !may));
    counts[WIFEXITED(status) ? "  not killed" : changed ? "  killed, new" : "  killed, old"]++;
    if (changed) {
        files[file] = lines[i];
    } else if (exists) {
        REQUIRE(file_is(file, *files[file]));
    }
}

void FileWalk::compact_one(size_t) {
    const size_t file = roll(kFiles);
    if (files[file]) {
        const auto before = std::filesystem::file_size(path(file));
        REQUIRE(stasis_snapshot_compact(path(file).c_str(), nullptr, nullptr) == STASIS_OK);
        REQUIRE(std::filesystem::file_size(path(file)) <= before);
        REQUIRE(file_is(file, *files[file]));
    }
}

void FileWalk::load_from(size_t i) {
    const size_t file = roll(kFiles);
    if (files[file]) {
        sessions[i] = load(model, path(file));
        lines[i] = *files[file];
        lines[i].stored = lines[i].tokens;
    }
}

void FileWalk::step() {
    struct Kind {
        const char *name;
        uint64_t weight;
        void (FileWalk::*act)(size_t i);
    };
    static const Kind kinds[] = {
        {"append", 25, &FileWalk::append_some}, {"decode", 25, &FileWalk::decode},
        {"rewind", 12, &FileWalk::rewind},      {"fork", 8, &FileWalk::fork_to},
        {"settings", 3, &FileWalk::set},        {"save", 12, &FileWalk::save_to},
        {"killed", 3, &FileWalk::save_killed},  {"compact", 2, &FileWalk::compact_one},
        {"load", 10, &FileWalk::load_from},
    };
    uint64_t number = roll(100);
    const Kind *kind = kinds;
    for (; number >= kind->weight; ++kind) {
        number -= kind->weight;
    }
    const size_t i = roll(kSessions);
    const std::string name = kind->name;
    CAPTURE(name);
    (this->*kind->act)(i);
    counts[kind->name]++;
    check_session(i);
}

} // namespace

TEST_CASE("stasis_session_save: a random walk of sessions and files never leaves what a plain "
          "model says") {
    const uint64_t seed = from_environment("STASIS_SEED", std::random_device()());
    const uint64_t steps =
        from_environment("STASIS_WALK_STEPS", 10000 / (stasis::test::whole_sweeps() ? 1 : 8));
    const std::chrono::seconds seconds(from_environment("STASIS_WALK_SECONDS", 120));
    std::printf("walk: seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    const auto end = std::chrono::steady_clock::now() + seconds;
    FileWalk walk(seed);
    uint64_t step = 0;
    for (; step < steps && std::chrono::steady_clock::now() < end; ++step) {
        CAPTURE(seed);
        CAPTURE(step);
        walk.step();
    }
    std::printf("walk: %llu operations\n", static_cast<unsigned long long>(step));
    for (const auto &[name, count] : walk.counts) {
        std::printf("walk: %6zu %s\n", count, name.c_str());
    }
    CHECK(step > 0);
}

#endif // STASIS_THREAD_SANITIZER
