// The numerics contract's table of equalities, at random: sessions of one model, opened with each
// kernel table and several numbers of threads, go through all that can be done to a session, and
// each must stay what a plain run of its own log gives (plain_runs.h). STASIS_SEED repeats a walk,
// STASIS_EQUALITY_STEPS says how many operations it has.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "tests/abi/plain_runs.h"
#include "tests/stride.h"

using namespace abi_test;

namespace {

constexpr size_t kSessions = 6;
constexpr size_t kFiles = 3;
constexpr uint32_t kSettings = 40;

// A session as the walk knows it.
struct Line {
    Log log = {};
    uint32_t settings = 0;
    bool tracked = false;
    std::string past = {}; // operations, a line each

    uint64_t position() const { return tokens_in(log).size(); }
    uint64_t room() const { return kWalkPositions - position(); }
};

struct Seat {
    Session session = {};
    size_t model = 0;
    Line line = {};
};

int32_t write_memory(void *user, const void *data, size_t size) {
    static_cast<std::string *>(user)->append(static_cast<const char *>(data), size);
    return 0;
}

int64_t read_memory(void *user, void *data, size_t size) {
    auto &bytes = *static_cast<std::string *>(user);
    const size_t count = std::min(size, bytes.size());
    std::memcpy(data, bytes.data(), count);
    bytes.erase(0, count);
    return static_cast<int64_t>(count);
}

// The model under every table that this machine has.
std::vector<Model> open_all(const std::string &path) {
    std::vector<Model> models;
    uint32_t threads = 2;
    for (const char *table :
         {"reference", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx", "avx2", "amx"}) {
        auto options = sized<stasis_model_options>();
        options.kernels = table;
        options.threads = 1 + threads++ % 3;
        stasis_model *model = nullptr;
        stasis_error error;
        const stasis_status status = stasis_model_open(path.c_str(), &options, &model, &error);
        if (status == STASIS_UNSUPPORTED) {
            std::printf("SKIPPED: equality walk: this machine cannot run table '%s'\n", table);
            continue;
        }
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
        models.emplace_back(model);
    }
    return models;
}

class Walk {
  public:
    Walk(const std::string &path, uint64_t seed)
        : plain_(path), models_(open_all(path)), dice_(seed) {
        for (size_t i = 0; i < kSessions; ++i) {
            renew(i);
        }
    }

    void step();
    void check_all() {
        for (size_t i = 0; i < kSessions; ++i) {
            check(i);
        }
    }
    const std::map<std::string, size_t> &counts() const { return counts_; }

  private:
    using Act = void (Walk::*)(size_t);

    uint64_t roll(uint64_t below) { return dice_() % below; }
    bool one_in(uint64_t n) { return roll(n) == 0; }
    stasis_session *of(size_t i) const { return seats_[i].session.get(); }
    void note(size_t i, const char *format, ...) __attribute__((format(printf, 3, 4)));
    Tokens story(const Line &line, uint64_t count);
    stasis_token drawn(size_t i, stasis_token token);
    void given(size_t i, const Tokens &tokens);
    void check(size_t i);
    void check_attention(size_t i);
    stasis_save_options save_options();
    void take_loaded(size_t i, size_t model, stasis_session *session, const Line &line);

    void renew(size_t i);
    void append_some(size_t i);
    void append_stopped(size_t i);
    void decode(size_t i);
    void step_many(size_t i);
    void fork_to(size_t i);
    void rewind(size_t i);
    void evict(size_t i);
    void set(size_t i);
    void draft(size_t i);
    void generate(size_t i);
    void save(size_t i);
    void load(size_t i);
    void move(size_t i);
    void move_all(size_t i);
    void score(size_t i);

    PlainRuns plain_;
    std::vector<Model> models_;
    std::mt19937_64 dice_;
    Folder folder_ = {};
    Seat seats_[kSessions] = {};
    std::optional<Line> files_[kFiles] = {};
    std::map<std::string, size_t> counts_ = {};
    size_t home_ = 0;    // the model to which most sessions go
    size_t suspect_ = 0; // the session that is looked at
};

void Walk::note(size_t i, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    seats_[i].line.past += std::string("    ") + text + "\n";
}

// Tokens of a few stories, so that sessions often share a beginning, and repeat themselves.
Tokens Walk::story(const Line &line, uint64_t count) {
    const uint64_t number = roll(3), begin = line.position();
    Tokens tokens;
    for (uint64_t at = begin; at < begin + count; ++at) {
        const uint64_t mixed = (number * 1000 + (number == 0 ? at % 11 : at)) * 2654435761;
        tokens.push_back(static_cast<stasis_token>(mixed % 4294967291 % 192));
    }
    return tokens;
}

stasis_token Walk::drawn(size_t i, stasis_token token) {
    Line &line = seats_[i].line;
    line.log.push_back({Event::Kind::drawn, token, line.settings});
    return token;
}

void Walk::given(size_t i, const Tokens &tokens) {
    for (const stasis_token token : tokens) {
        seats_[i].line.log.push_back({Event::Kind::given, token});
    }
}

void Walk::check(size_t i) {
    suspect_ = i;
    const Log &log = seats_[i].line.log;
    const Tokens expected = tokens_in(log);
    REQUIRE(position(of(i)) == expected.size());
    Tokens tokens(expected.size());
    size_t count = 0;
    REQUIRE(stasis_session_tokens(of(i), 0, tokens.data(), nullptr, tokens.size(), &count,
                                  nullptr) == STASIS_OK);
    REQUIRE(tokens == expected);
    REQUIRE(digest(of(i)) == plain_.digest_of(log));
    counts_["  digests compared"]++;
    if (seats_[i].line.tracked && one_in(6)) {
        check_attention(i);
    }
}

void Walk::check_attention(size_t i) {
    std::vector<double> weights(position(of(i)));
    size_t count = 0;
    REQUIRE(stasis_session_attention(of(i), 0, weights.data(), weights.size(), &count, nullptr) ==
            STASIS_OK);
    REQUIRE(weights == plain_.attention_of(seats_[i].line.log));
    counts_["  attention compared"]++;
}

// ---- What can be done to a session --------------------------------------------------------------

void Walk::renew(size_t i) {
    auto options = sized<stasis_session_options>();
    const uint64_t retains[] = {0, 0, 40, STASIS_WINDOW_RETAIN_NONE};
    const uint64_t domains[] = {STASIS_DOMAIN_COMMON, STASIS_DOMAIN_COMMON, 1,
                                STASIS_DOMAIN_PRIVATE};
    options.capacity = kWalkPositions;
    options.window_retain = retains[roll(4)];
    options.domain = domains[roll(4)];
    options.track_attention = one_in(4) ? STASIS_TRACK_TOTAL : 0;
    Seat seat;
    seat.model = one_in(4) ? roll(models_.size()) : home_;
    stasis_session *session = nullptr;
    REQUIRE(stasis_session_create(models_[seat.model].get(), &options, &session, nullptr) ==
            STASIS_OK);
    seat.session.reset(session);
    seat.line.tracked = options.track_attention != 0;
    if (seats_[i].session) {
        check(i); // the last that is seen of it
    }
    seats_[i] = std::move(seat);
    note(i, "created: model %zu, domain %llx, retain %llx, tracked %u", seats_[i].model,
         static_cast<unsigned long long>(options.domain),
         static_cast<unsigned long long>(options.window_retain), options.track_attention);
    set(i);
}

void Walk::append_some(size_t i) {
    const uint64_t room = seats_[i].line.room();
    if (room == 0) {
        rewind(i);
        return;
    }
    const uint64_t count = std::min(room, 1 + roll(one_in(4) ? 130 : 24));
    const Tokens tokens = story(seats_[i].line, count);
    const uint32_t chunks[] = {0, 0, 1, 7, 32, 65};
    auto options = sized<stasis_run_options>();
    options.chunk = chunks[roll(6)];
    note(i, "append %zu, chunk %u", tokens.size(), options.chunk);
    REQUIRE(stasis_session_append(of(i), tokens.data(), tokens.size(), &options, nullptr) ==
            STASIS_OK);
    given(i, tokens);
}

// It leaves no trace.
void Walk::append_stopped(size_t i) {
    const uint64_t room = seats_[i].line.room();
    if (room < 2) {
        return;
    }
    const Tokens tokens = story(seats_[i].line, std::min(room, 2 + roll(90)));
    uint64_t after = roll(tokens.size() / 2);
    auto options = sized<stasis_run_options>();
    options.chunk = 1 + static_cast<uint32_t>(roll(9));
    options.progress_user = &after;
    options.progress = [](void *user, uint64_t done, uint64_t) -> int32_t {
        return done >= *static_cast<uint64_t *>(user) ? 1 : 0;
    };
    note(i, "append %zu, stopped after %llu", tokens.size(),
         static_cast<unsigned long long>(after));
    const stasis_status status =
        stasis_session_append(of(i), tokens.data(), tokens.size(), &options, nullptr);
    if (status == STASIS_OK) { // known pages leave nothing to stop
        given(i, tokens);
    } else {
        REQUIRE(status == STASIS_STOPPED);
    }
}

void Walk::decode(size_t i) {
    const Line &line = seats_[i].line;
    for (uint64_t count = 1 + roll(5); count > 0; --count) {
        stasis_token token = 0;
        const stasis_status status = stasis_session_decode(of(i), &token, nullptr);
        if (line.log.empty() || line.room() == 0) {
            REQUIRE(status == (line.log.empty() ? STASIS_NOT_FOUND : STASIS_FULL));
            return;
        }
        REQUIRE(status == STASIS_OK);
        note(i, "decode: %u", drawn(i, token));
    }
}

// Several sessions of the model, some with prompts, some drawing, some with both.
void Walk::step_many(size_t i) {
    std::vector<stasis_step_item> items;
    std::vector<size_t> seats;
    Tokens tokens;
    for (size_t j = 0; j < kSessions; ++j) {
        const Line &line = seats_[j].line;
        if (seats_[j].model != seats_[i].model || line.room() < 2 || (j != i && one_in(4))) {
            continue;
        }
        stasis_step_item item{};
        item.session = of(j);
        item.begin = tokens.size();
        item.count = one_in(2) ? std::min(line.room() - 1, 1 + roll(one_in(4) ? 100 : 12)) : 0;
        const Tokens added = story(line, item.count);
        tokens.insert(tokens.end(), added.begin(), added.end());
        const bool draws = (item.count > 0 || !line.log.empty()) && !one_in(4);
        item.flags = draws ? STASIS_STEP_SAMPLE : 0;
        items.push_back(item);
        seats.push_back(j);
    }
    auto options = sized<stasis_run_options>();
    options.chunk = one_in(2) ? 0 : 1 + static_cast<uint32_t>(roll(40));
    REQUIRE(stasis_sessions_step(items.data(), sizeof(stasis_step_item), items.size(),
                                 tokens.data(), tokens.size(), &options, nullptr) == STASIS_OK);
    for (size_t k = 0; k < items.size(); ++k) {
        const stasis_step_item &item = items[k];
        note(seats[k], "step of %zu sessions: append %zu, draw %u: %u, chunk %u", items.size(),
             item.count, item.flags, item.token, options.chunk);
        REQUIRE(item.status == STASIS_OK);
        const auto begin = tokens.begin() + static_cast<ptrdiff_t>(item.begin);
        given(seats[k], Tokens(begin, begin + static_cast<ptrdiff_t>(item.count)));
        if (item.flags != 0) {
            drawn(seats[k], item.token);
        }
    }
    counts_["  sessions stepped"] += items.size();
}

void Walk::fork_to(size_t i) {
    const size_t child = roll(kSessions);
    if (child == i) {
        return;
    }
    check(child);
    note(i, "forked to %zu", child);
    seats_[child] = {fork(of(i)), seats_[i].model, seats_[i].line};
    note(child, "is that fork");
}

void Walk::rewind(size_t i) {
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(of(i), &info, nullptr) == STASIS_OK);
    const uint64_t far = one_in(3) ? info.position : std::min<uint64_t>(info.position, 30);
    const uint64_t to = info.position - roll(far + 1);
    const uint32_t flags = one_in(2) ? STASIS_REWIND_RECOMPUTE : 0;
    note(i, "rewind to %llu, flags %u", static_cast<unsigned long long>(to), flags);
    const stasis_status status = stasis_session_rewind(of(i), to, flags, nullptr, nullptr);
    if (to > 0 && to < info.rewind_floor && flags == 0) {
        REQUIRE(status == STASIS_UNSUPPORTED);
        return;
    }
    REQUIRE(status == STASIS_OK);
    cut_log(seats_[i].line.log, to);
}

void Walk::evict(size_t i) {
    const uint64_t position = seats_[i].line.position();
    if (position == 0) {
        return;
    }
    const uint64_t begin = roll(position);
    const uint64_t end =
        begin + 1 + roll(std::min<uint64_t>(position - begin, one_in(3) ? 130 : 20));
    note(i, "evict %llu to %llu", static_cast<unsigned long long>(begin),
         static_cast<unsigned long long>(end));
    REQUIRE(stasis_session_evict(of(i), begin, end, nullptr) == STASIS_OK);
    seats_[i].line.log.push_back({Event::Kind::evicted, 0, 0, begin, end});
}

void Walk::set(size_t i) {
    seats_[i].line.settings = static_cast<uint32_t>(roll(kSettings));
    note(i, "settings %u", seats_[i].line.settings);
    Settings(seats_[i].line.settings).put_into(of(i));
}

// The model itself, the same under other kernels, a search in the log, or nothing.
void Walk::draft(size_t i) {
    auto options = sized<stasis_draft_options>();
    options.tokens_min = roll(5);
    options.tokens_max = options.tokens_min == 0 ? 0 : options.tokens_min + roll(4);
    const uint64_t kind = roll(5);
    stasis_model *draft = kind == 0   ? models_[seats_[i].model].get()
                          : kind == 1 ? models_[roll(models_.size())].get()
                                      : nullptr;
    note(i, "draft by %s, %llu to %llu",
         kind == 4 ? "nothing"
         : draft   ? "a model"
                   : "lookup",
         static_cast<unsigned long long>(options.tokens_min),
         static_cast<unsigned long long>(options.tokens_max));
    REQUIRE(stasis_session_set_draft(of(i), draft, kind == 4 ? nullptr : &options, nullptr) ==
            STASIS_OK);
}

void Walk::generate(size_t i) {
    Line &line = seats_[i].line;
    if (line.log.empty() || line.room() == 0) {
        return;
    }
    if (one_in(2)) {
        draft(i);
    }
    struct Heard {
        Tokens tokens = {};
        size_t most = 0;
    } heard;
    const stasis_token stops[2] = {static_cast<stasis_token>(roll(192)),
                                   static_cast<stasis_token>(roll(192))};
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = 1 + roll(24);
    options.stop_tokens = stops;
    options.stop_token_count = roll(3);
    options.log_probability_count = static_cast<uint32_t>(roll(2) * 3);
    heard.most = one_in(3) ? 1 + roll(12) : SIZE_MAX;
    options.callback_user = &heard;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        auto &self = *static_cast<Heard *>(user);
        if (event->last == 0) {
            self.tokens.push_back(event->token);
        }
        return self.tokens.size() >= self.most ? 1 : 0;
    };
    const uint64_t most = std::min<uint64_t>({options.tokens_max, line.room(), heard.most});
    auto result = sized<stasis_generate_result>();
    const stasis_status status = stasis_session_generate(of(i), &options, &result, nullptr);
    note(i, "generate %llu, callback %zu: %llu, of %llu drafted %llu accepted",
         static_cast<unsigned long long>(options.tokens_max), heard.most,
         static_cast<unsigned long long>(result.count),
         static_cast<unsigned long long>(result.drafted),
         static_cast<unsigned long long>(result.accepted));
    REQUIRE((status == STASIS_OK || status == STASIS_STOPPED));
    REQUIRE(result.count == heard.tokens.size());
    REQUIRE(result.begin == line.position());
    const auto stopped = std::find_first_of(heard.tokens.begin(), heard.tokens.end(), stops,
                                            stops + options.stop_token_count);
    const auto length = static_cast<uint64_t>(stopped - heard.tokens.begin());
    REQUIRE(result.count == (stopped == heard.tokens.end() ? most : length + 1));
    for (const stasis_token token : heard.tokens) {
        drawn(i, token);
    }
    counts_["  tokens drafted"] += result.drafted;
    counts_["  tokens accepted"] += result.accepted;
}

stasis_save_options Walk::save_options() {
    auto options = sized<stasis_save_options>();
    options.codec = static_cast<uint32_t>(roll(STASIS_CODEC_ZSTD + 1));
    options.keep = one_in(4) ? STASIS_KEEP_NONE : STASIS_KEEP_FULL;
    return options;
}

// To a file that may hold another session, which is then replaced if it begins otherwise.
void Walk::save(size_t i) {
    const size_t file = roll(kFiles);
    const std::string path = folder_.file(std::to_string(file));
    auto options = save_options();
    note(i, "save to %zu, codec %u, keep %u", file, options.codec, options.keep);
    if (stasis_session_save(of(i), path.c_str(), &options, nullptr) != STASIS_OK) {
        options.flags = STASIS_SAVE_REPLACE;
        REQUIRE(stasis_session_save(of(i), path.c_str(), &options, nullptr) == STASIS_OK);
    }
    files_[file] = seats_[i].line;
}

void Walk::take_loaded(size_t i, size_t model, stasis_session *session, const Line &line) {
    seats_[i] = {Session(session), model, line};
    note(i, "loaded by model %zu", model);
}

void Walk::load(size_t i) {
    const size_t file = roll(kFiles), model = one_in(3) ? roll(models_.size()) : home_;
    if (!files_[file]) {
        return;
    }
    check(i);
    auto options = sized<stasis_load_options>();
    options.flags = one_in(2) ? STASIS_LOAD_TRUSTED : 0;
    stasis_session *session = nullptr;
    stasis_error error;
    const stasis_status status =
        stasis_session_load(models_[model].get(), folder_.file(std::to_string(file)).c_str(),
                            &options, &session, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    take_loaded(i, model, session, *files_[file]);
}

// To another table and number of threads.
void Walk::move(size_t i) {
    std::string bytes;
    auto sink = sized<stasis_sink>();
    sink.user = &bytes;
    sink.write = write_memory;
    const auto how = save_options();
    REQUIRE(stasis_session_write(of(i), &sink, &how, nullptr) == STASIS_OK);
    auto source = sized<stasis_source>();
    source.user = &bytes;
    source.read = read_memory;
    auto options = sized<stasis_load_options>();
    options.flags = one_in(2) ? STASIS_LOAD_TRUSTED : 0;
    const size_t model = one_in(3) ? roll(models_.size()) : home_;
    stasis_session *session = nullptr;
    stasis_error error;
    const stasis_status status =
        stasis_session_read(models_[model].get(), &source, &options, &session, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    take_loaded(i, model, session, Line(seats_[i].line));
}

void Walk::move_all(size_t) {
    home_ = roll(models_.size());
    for (size_t i = 0; i < kSessions; ++i) {
        move(i);
    }
}

void Walk::score(size_t i) {
    const uint64_t room = seats_[i].line.room();
    if (seats_[i].line.log.empty() || room == 0) {
        return;
    }
    const Tokens tokens = story(seats_[i].line, std::min(room, 1 + roll(20)));
    std::vector<double> probabilities(tokens.size());
    note(i, "score %zu", tokens.size());
    REQUIRE(stasis_session_score(of(i), tokens.data(), tokens.size(), probabilities.data(), nullptr,
                                 nullptr) == STASIS_OK);
}

void Walk::step() {
    static const struct {
        const char *name;
        uint64_t weight;
        Act act;
    } kinds[] = {
        {"append", 16, &Walk::append_some},
        {"decode", 9, &Walk::decode},
        {"step", 20, &Walk::step_many},
        {"generate", 12, &Walk::generate},
        {"rewind", 10, &Walk::rewind},
        {"fork", 8, &Walk::fork_to},
        {"evict", 5, &Walk::evict},
        {"settings", 3, &Walk::set},
        {"stopped", 2, &Walk::append_stopped},
        {"score", 2, &Walk::score},
        {"save", 4, &Walk::save},
        {"load", 3, &Walk::load},
        {"move", 2, &Walk::move},
        {"move all", 1, &Walk::move_all},
        {"renew", 3, &Walk::renew},
    };
    uint64_t number = roll(100);
    const auto *kind = kinds;
    for (; number >= kind->weight; ++kind) {
        number -= kind->weight;
    }
    const size_t i = roll(kSessions);
    suspect_ = i;
    try {
        (this->*kind->act)(i);
        counts_[kind->name]++;
        for (size_t at = 0; at < kSessions; ++at) {
            if (one_in(at == i ? 4 : 24)) {
                check(at);
            }
        }
    } catch (...) {
        std::printf("equality walk: %s failed; operations of session %zu:\n%s", kind->name, suspect_,
                    seats_[suspect_].line.past.c_str());
        throw;
    }
}

uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

void walk(const std::string &name, const std::string &path) {
    const uint64_t seed = from_environment("STASIS_SEED", std::random_device()());
    const uint64_t steps =
        from_environment("STASIS_EQUALITY_STEPS", 10000) / 4 / stasis::test::kStride;
    std::printf("equality walk: %s, seed %llu\n", name.c_str(),
                static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    Walk walk(path, seed);
    for (uint64_t step = 0; step < steps; ++step) {
        CAPTURE(seed);
        CAPTURE(step);
        walk.step();
    }
    walk.check_all();
    std::printf("equality walk: %s, %llu operations\n", name.c_str(),
                static_cast<unsigned long long>(steps));
    for (const auto &count : walk.counts()) {
        std::printf("equality walk: %6zu %s\n", count.second, count.first.c_str());
    }
}

} // namespace

TEST_CASE("equality walk: whatever is done to sessions, each is a plain run of its log") {
    for (const char *name : {"gemma3-text", "llama-gqa-untied", "mistral-window"}) {
        walk(name, test_data(std::string("zoo/") + name));
    }
    const Folder folder;
    const std::string path = folder.file("quantized.gguf");
    auto options = sized<stasis_quantize_options>();
    options.type = "Q4_K_M";
    stasis_error error;
    const stasis_status status = stasis_model_quantize(test_data("recall-llama").c_str(),
                                                       path.c_str(), &options, nullptr, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    walk("recall-llama in Q4_K_M", path);
}
