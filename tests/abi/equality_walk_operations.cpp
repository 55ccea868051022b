// The operations on sessions of the walk in equality_walk_test.cpp.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "tests/abi/equality_walk.h"
#include "tests/abi/pulled.h"

namespace abi_test {

namespace {

constexpr uint32_t kSettings = 40;

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

} // namespace

void EqualityWalk::note(size_t i, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    seats_[i].line.past += std::string("    ") + text + "\n";
}

stasis_session_info EqualityWalk::info_of(size_t i) const {
    return abi_test::info_of(of(i));
}

// Tokens of a few stories, so that sessions often share a beginning, and repeat themselves.
Tokens EqualityWalk::story(const Line &line, uint64_t count) {
    const uint64_t number = one_in(4) ? roll(3) : 1, begin = line.position(); // mostly the same
    Tokens tokens;
    for (uint64_t at = begin; at < begin + count; ++at) {
        const uint64_t mixed = (number * 1000 + (number == 0 ? at % 11 : at)) * 2654435761;
        tokens.push_back(static_cast<stasis_token>(mixed % 4294967291 % 192));
    }
    return tokens;
}

stasis_token EqualityWalk::drawn(size_t i, stasis_token token) {
    Line &line = seats_[i].line;
    line.log.push_back({LogEvent::Kind::drawn, token, line.settings});
    return token;
}

void EqualityWalk::given(size_t i, const Tokens &tokens) {
    for (const stasis_token token : tokens) {
        seats_[i].line.log.push_back({LogEvent::Kind::given, token});
    }
}

void EqualityWalk::renew(size_t i) {
    auto options = sized<stasis_session_options>();
    const uint64_t retains[] = {0, 0, 40, STASIS_WINDOW_RETAIN_NONE};
    const uint64_t domains[] = {STASIS_DOMAIN_COMMON, STASIS_DOMAIN_COMMON, 1,
                                STASIS_DOMAIN_PRIVATE};
    options.capacity = short_ != 0 && i % 2 == 0 ? short_ : positions_;
    options.window_retain = retains[roll(4)];
    options.domain = domains[short_ != 0 ? 0 : roll(4)]; // where sides might meet, they do
    options.track_attention = one_in(4) ? STASIS_TRACK_TOTAL : 0;
    create(i, one_in(4) ? roll(models_.size()) : home_, options);
}

void EqualityWalk::create(size_t i, size_t model, const stasis_session_options &options) {
    Seat seat;
    seat.model = model;
    stasis_session *session = nullptr;
    REQUIRE(stasis_session_create(models_[seat.model].get(), &options, &session, nullptr) ==
            STASIS_OK);
    seat.session.reset(session);
    seat.line.tracked = options.track_attention != 0;
    seat.line.capacity = options.capacity;
    if (seats_[i].session) {
        check(i); // the last that is seen of it
    }
    seats_[i] = std::move(seat);
    note(i, "created: model %zu, capacity %llu, domain %llx, retain %llx, tracked %u",
         seats_[i].model, static_cast<unsigned long long>(options.capacity),
         static_cast<unsigned long long>(options.domain),
         static_cast<unsigned long long>(options.window_retain), options.track_attention);
    set(i);
}

// Two sessions of one model and domain begin with the same tokens, beyond a page, of a hybrid
// beyond a checkpoint: whatever the seed, the second takes what the first has computed.
void EqualityWalk::begin_alike() {
    auto options = sized<stasis_session_options>();
    options.capacity = positions_;
    options.domain = STASIS_DOMAIN_COMMON;
    const Tokens tokens = story(Line{}, recurrent_ ? 300 : 130);
    for (const size_t i : {0, 1}) {
        create(i, home_, options);
        append_tokens(i, tokens, 0);
    }
}

void EqualityWalk::append_some(size_t i) {
    const uint64_t room = room_of(seats_[i].line);
    if (room == 0) {
        rewind(i);
        return;
    }
    const bool empty = seats_[i].line.log.empty();
    const bool far = one_in(4) || (recurrent_ && empty); // beyond a checkpoint
    // Beyond a page, which others take; but not those on the other side of long RoPE.
    const uint64_t least = empty && one_in(2) ? 64 : 0;
    const uint64_t count = std::min(room, least + 1 + roll(far ? longest_ : 24));
    const Tokens tokens = story(seats_[i].line, count);
    const uint32_t chunks[] = {0, 0, 1, 7, 32, 65};
    append_tokens(i, tokens, chunks[roll(6)]);
}

void EqualityWalk::append_tokens(size_t i, const Tokens &tokens, uint32_t chunk) {
    auto options = sized<stasis_run_options>();
    options.chunk = chunk;
    const uint64_t reused = info_of(i).tokens_reused;
    note(i, "append %zu, chunk %u", tokens.size(), options.chunk);
    REQUIRE(stasis_session_append(of(i), tokens.data(), tokens.size(), &options, nullptr) ==
            STASIS_OK);
    counts_["  tokens reused"] += info_of(i).tokens_reused - reused;
    given(i, tokens);
}

// It leaves no trace.
void EqualityWalk::append_stopped(size_t i) {
    const uint64_t room = room_of(seats_[i].line);
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

void EqualityWalk::decode(size_t i) {
    const Line &line = seats_[i].line;
    for (uint64_t count = 1 + roll(5); count > 0; --count) {
        stasis_token token = 0;
        const stasis_status status = stasis_session_decode(of(i), &token, nullptr);
        if (line.log.empty() || room_of(line) == 0) {
            REQUIRE(status == (line.log.empty() ? STASIS_NOT_FOUND : STASIS_FULL));
            return;
        }
        REQUIRE(status == STASIS_OK);
        note(i, "decode: %u", drawn(i, token));
    }
}

// Several sessions of the model, some with prompts, some drawing, some with both.
void EqualityWalk::step_many(size_t i) {
    std::vector<stasis_step_item> items;
    std::vector<size_t> seats;
    Tokens tokens;
    for (size_t j = 0; j < kSessions; ++j) {
        const Line &line = seats_[j].line;
        if (seats_[j].model != seats_[i].model || room_of(line) < 2 || (j != i && one_in(4))) {
            continue;
        }
        auto item = sized<stasis_step_item>();
        item.session = of(j);
        item.begin = tokens.size();
        item.count = one_in(2) ? std::min(room_of(line) - 1, 1 + roll(one_in(4) ? 100 : 12)) : 0;
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

void EqualityWalk::fork_to(size_t i) {
    const size_t child = roll(kSessions);
    if (child == i) {
        return;
    }
    check(child);
    note(i, "forked to %zu", child);
    seats_[child] = {fork(of(i)), seats_[i].model, seats_[i].line};
    note(child, "is that fork");
}

void EqualityWalk::rewind(size_t i) {
    const stasis_session_info info = info_of(i);
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

void EqualityWalk::evict(size_t i) {
    const uint64_t position = seats_[i].line.position();
    if (position == 0) {
        return;
    }
    const uint64_t begin = roll(position);
    const uint64_t end =
        begin + 1 + roll(std::min<uint64_t>(position - begin, one_in(3) ? 130 : 20));
    note(i, "evict %llu to %llu", static_cast<unsigned long long>(begin),
         static_cast<unsigned long long>(end));
    const stasis_status status = stasis_session_evict(of(i), begin, end, nullptr);
    REQUIRE(status == (recurrent_ ? STASIS_UNSUPPORTED : STASIS_OK));
    if (recurrent_) {
        return;
    }
    seats_[i].line.log.push_back({LogEvent::Kind::evicted, 0, 0, begin, end});
}

void EqualityWalk::set(size_t i) {
    seats_[i].line.settings = static_cast<uint32_t>(roll(kSettings));
    note(i, "settings %u", seats_[i].line.settings);
    Settings(seats_[i].line.settings).put_into(of(i));
}

// The model itself, the same under other kernels, a search in the log, or nothing.
void EqualityWalk::draft(size_t i) {
    auto options = sized<stasis_draft_options>();
    options.tokens_min = roll(5);
    options.tokens_max = options.tokens_min; // always as many: an adapted number would rarely draft
    if (one_in(4)) {
        options.tokens_max = options.tokens_min == 0 ? 0 : options.tokens_min + roll(4);
    }
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

void EqualityWalk::generate(size_t i) {
    Line &line = seats_[i].line;
    if (line.log.empty() || room_of(line) == 0) {
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
    const uint64_t most = std::min<uint64_t>({options.tokens_max, room_of(line), heard.most});
    auto result = sized<stasis_generate_result>();
    stasis_status status = STASIS_OK;
    if (one_in(2)) {
        status = stasis_session_generate(of(i), &options, &result, nullptr);
    } else { // asked for, and now and then read in between
        options.callback = nullptr;
        options.callback_user = nullptr;
        const Generation generation = begin(of(i), options);
        for (PulledEvent event; heard.tokens.size() < heard.most;) {
            event = next(generation.get());
            if (event.last != 0) {
                break;
            }
            heard.tokens.push_back(event.token);
            if (one_in(6)) {
                CHECK(digest(fork(of(i)).get()) == digest(of(i)));
            }
        }
        result = result_of(generation.get());
    }
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

stasis_save_options EqualityWalk::save_options() {
    auto options = sized<stasis_save_options>();
    options.codec = static_cast<uint32_t>(roll(STASIS_CODEC_ZSTD + 1));
    options.keep = one_in(4) ? STASIS_KEEP_NONE : STASIS_KEEP_FULL;
    return options;
}

// To a file that may hold another session, which is then replaced if it begins otherwise.
void EqualityWalk::save(size_t i) {
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

void EqualityWalk::take_loaded(size_t i, size_t model, stasis_session *session, const Line &line) {
    seats_[i] = {Session(session), model, line};
    note(i, "loaded by model %zu", model);
}

void EqualityWalk::load(size_t i) {
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
    REQUIRE_MESSAGE(status == STASIS_OK, error.message, ", by model ", model,
                    "; the file's session:\n", files_[file]->past);
    take_loaded(i, model, session, *files_[file]);
}

// To another table and number of threads.
void EqualityWalk::move(size_t i) {
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

void EqualityWalk::move_all(size_t) {
    home_ = roll(models_.size());
    for (size_t i = 0; i < kSessions; ++i) {
        move(i);
    }
}

void EqualityWalk::score(size_t i) {
    const uint64_t room = room_of(seats_[i].line);
    if (seats_[i].line.log.empty() || room == 0) {
        return;
    }
    const Tokens tokens = story(seats_[i].line, std::min(room, 1 + roll(20)));
    std::vector<double> probabilities(tokens.size());
    note(i, "score %zu", tokens.size());
    REQUIRE(stasis_session_score(of(i), tokens.data(), tokens.size(), probabilities.data(), nullptr,
                                 nullptr) == STASIS_OK);
}

} // namespace abi_test
