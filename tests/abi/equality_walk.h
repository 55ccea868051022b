// The walk of equality_walk_test.cpp: sessions of one model, what the walk knows of them, and the
// operations that it draws from. Knows the public header alone.
#pragma once

#include <map>
#include <optional>

#include "tests/abi/plain_runs.h"

namespace abi_test {

// A session as the walk knows it.
struct Line {
    Log log = {};
    uint64_t capacity = 0;
    uint32_t settings = 0;
    bool tracked = false;
    std::string past = {}; // operations, a line each

    uint64_t position() const { return tokens_in(log).size(); }
};

struct Seat {
    Session session = {};
    size_t model = 0;
    Line line = {};
};

// The model under every table that this machine has, each with one to three threads.
std::vector<Model> open_all(const std::string &path);

// Reports whether a bundled model has recurrent layers.
inline bool is_hybrid(const std::string &path) {
    return path.find("zoo/qwen3_5") != std::string::npos ||
           path.find("zoo/lfm2") != std::string::npos ||
           path.find("zoo/granite4-h") != std::string::npos;
}

// The capacity at which sessions of a bundled model with long RoPE get the other set of factors,
// which is the model's original context; 0 for other models.
inline uint64_t short_capacity(const std::string &path) {
    return path.find("zoo/phi3-longrope") != std::string::npos ? 64 : 0;
}

class EqualityWalk {
  public:
    EqualityWalk(const std::string &path, uint64_t seed)
        : recurrent_(is_hybrid(path)),
          positions_(recurrent_ ? kRecurrentPositions : kWalkPositions),
          short_(short_capacity(path)), longest_(recurrent_ ? 400 : 130), plain_(path, positions_),
          models_(open_all(path)), dice_(seed) {
        if (short_ != 0) {
            plain_short_.emplace(path, short_);
        }
        for (size_t i = 0; i < kSessions; ++i) {
            renew(i);
        }
        begin_alike();
    }

    void step();
    void check_all() {
        for (size_t i = 0; i < kSessions; ++i) {
            check(i);
        }
    }
    const std::map<std::string, size_t> &counts() const { return counts_; }

  private:
    static constexpr size_t kSessions = 6;
    static constexpr size_t kFiles = 3;
    using Act = void (EqualityWalk::*)(size_t);

    uint64_t roll(uint64_t below) { return dice_() % below; }
    uint64_t room_of(const Line &line) const { return line.capacity - line.position(); }
    PlainRuns &plain_of(const Line &line) {
        return line.capacity == positions_ ? plain_ : *plain_short_;
    }
    bool one_in(uint64_t n) { return roll(n) == 0; }
    stasis_session_info info_of(size_t i) const;
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
    void create(size_t i, size_t model, const stasis_session_options &options);
    void begin_alike();
    void append_some(size_t i);
    void append_tokens(size_t i, const Tokens &tokens, uint32_t chunk);
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

    bool recurrent_;     // the model cannot evict, and has checkpoints
    uint64_t positions_; // of a session
    uint64_t short_;     // of some sessions: short_capacity()
    uint64_t longest_;   // append
    PlainRuns plain_;
    std::optional<PlainRuns> plain_short_ = {}; // with short_ positions
    std::vector<Model> models_;
    std::mt19937_64 dice_;
    Folder folder_ = {};
    Seat seats_[kSessions] = {};
    std::optional<Line> files_[kFiles] = {};
    std::map<std::string, size_t> counts_ = {};
    size_t home_ = 0;    // the model to which most sessions go
    size_t suspect_ = 0; // the session that is looked at
};

} // namespace abi_test
