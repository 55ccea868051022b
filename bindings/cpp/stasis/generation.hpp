// Stasis for C++20: tokens that a session draws, as ranges. Included by stasis.hpp.
#pragma once

#include <iterator>
#include <optional>
#include <ranges>

#include "stasis/options.hpp"
#include "stasis/sampling.hpp"

namespace stasis {

using GenerateResult = stasis_generate_result;

// Why a generation ended.
enum class Stop : std::uint32_t {
    Length = STASIS_STOP_LENGTH,
    EndToken = STASIS_STOP_END_TOKEN,
    String = STASIS_STOP_STRING,
    Callback = STASIS_STOP_CALLBACK, // the host; of one that goes on, if it ended now
    Cancelled = STASIS_STOP_CANCELLED,
    NoToken = STASIS_STOP_NO_TOKEN,
    Timeout = STASIS_STOP_TIMEOUT,
};

// How a generation decodes and when it stops: stasis_generate_options.
struct GenerateOptions {
    std::uint64_t tokens_max = 0; // 0: until the session is full
    std::vector<Token> stop_tokens = {};
    std::vector<std::string> stop_strings = {};
    bool ignore_end = false; // the model's end tokens do not stop it
    // Report with each token its log-probability, and those of this many most likely ones.
    std::uint32_t log_probabilities = 0;
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
};

// A token that is in the session's log.
struct Generated {
    Token token = 0;
    std::uint64_t position = 0;
    std::string text = {}; // that became final with it: whole characters, perhaps none
    bool last = false;     // the text was held back; the token is the last one again
    float log_probability = 0;
    std::vector<Candidate> best = {}; // best first
};

namespace detail {

// The C struct of options, which points into them and into arrays of this object.
struct RawGenerate {
    explicit RawGenerate(const GenerateOptions &from) {
        for (const std::string &each : from.stop_strings) {
            strings.push_back(c_text(each, "a stop string"));
        }
        raw.flags = from.ignore_end ? STASIS_GENERATE_IGNORE_END : 0;
        raw.tokens_max = from.tokens_max;
        raw.stop_tokens = from.stop_tokens.data();
        raw.stop_token_count = from.stop_tokens.size();
        raw.stop_strings = strings.data();
        raw.stop_string_count = strings.size();
        raw.log_probability_count = from.log_probabilities;
        raw.cancel = raw_of(from.cancel);
        raw.timeout_ms = raw_ms(from.timeout);
    }
    RawGenerate(const RawGenerate &) = delete;
    RawGenerate &operator=(const RawGenerate &) = delete;

    std::vector<const char *> strings;
    stasis_generate_options raw = sized<stasis_generate_options>();
};

// Copies an event; that of a scheduler has the same members.
template <typename Raw> Generated generated_of(const Raw &raw) {
    Generated made{.token = raw.token,
                   .position = raw.position,
                   .text = std::string(raw.text == nullptr ? "" : raw.text, raw.length),
                   .log_probability = raw.log_probability};
    for (std::uint32_t i = 0; i < raw.log_probability_count; ++i) {
        made.best.push_back({raw.best_tokens[i], raw.best_log_probabilities[i]});
    }
    return made;
}

// A range whose items are what next() of `Range` returns, until it returns none: an input range, a
// view, and moved like one. Each begin() asks for an item, so that a second loop goes on where the
// first one was left.
template <typename Range, typename Item> class Pulled : public std::ranges::view_base {
  public:
    class iterator {
      public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = Item;
        using difference_type = std::ptrdiff_t;

        iterator() = default;
        explicit iterator(Pulled &range) : range_(&range) { ++*this; }
        const Item &operator*() const noexcept { return *range_->item_; }
        const Item *operator->() const noexcept { return &*range_->item_; }
        iterator &operator++() {
            range_->item_.reset(); // which next() may throw instead of replacing
            range_->item_ = static_cast<Range *>(range_)->next();
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(std::default_sentinel_t) const noexcept { return !range_->item_; }

      private:
        Pulled *range_ = nullptr;
    };

    iterator begin() { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

  private:
    std::optional<Item> item_;
};

} // namespace detail

// A generation: a token is drawn when it is asked for, by next() or by a loop over it. It may be
// left at any time; the session then has the tokens that were given and nothing else. Meanwhile the
// session can be read, forked and saved, by other threads too, which wait for the token that is
// being computed. Calls that would change it throw Error(Busy) until the generation is over or
// destroyed.
class [[nodiscard]] Generation : public detail::Pulled<Generation, Generated> {
  public:
    // Returns the next token; none: it is over. After an Error other than Timeout, which ends it,
    // the same call may be made again.
    std::optional<Generated> next() {
        auto raw = detail::sized<stasis_generated>();
        detail::Call call;
        const stasis_status status = stasis_generation_next(handle_.get(), &raw, call.error());
        if (status == STASIS_OK) {
            held_back_.clear();
        } else if ((status == STASIS_CANCELLED || status == STASIS_TIMEOUT) && raw.length != 0) {
            held_back_.assign(raw.text, raw.length); // after a timeout it is told once
        }
        detail::check(listener_, call, status);
        if (raw.last != 0 && raw.length == 0) {
            return std::nullopt;
        }
        Generated made = detail::generated_of(raw);
        made.last = raw.last != 0;
        return made;
    }

    // Returns the outcome so far.
    GenerateResult result() const {
        auto result = detail::sized<GenerateResult>();
        detail::call([&](stasis_error *error) {
            return stasis_generation_get_result(handle_.get(), &result, error);
        });
        return result;
    }
    Stop stop() const { return static_cast<Stop>(result().stop_reason); }
    // Returns the text that was held back when next() threw Error(Cancelled) or Error(Timeout): for
    // a host that gives up. To one that goes on after a cancel it comes again.
    const std::string &held_back() const noexcept { return held_back_; }

  private:
    friend class Session;
    Generation(stasis_session *session, std::shared_ptr<detail::Listener> listener,
               const GenerateOptions &options)
        : listener_(std::move(listener)) {
        const detail::RawGenerate given(options);
        stasis_generation *raw = nullptr;
        detail::Call call;
        const stasis_status status =
            stasis_generation_begin(session, &given.raw, &raw, call.error());
        handle_.reset(raw);
        detail::check(listener_, call, status);
    }

    std::shared_ptr<detail::Listener> listener_;
    detail::Handle<stasis_generation, stasis_generation_end> handle_;
    std::string held_back_;
};

// The reply to Session::say: a range over pieces of its text, none of them empty.
class [[nodiscard]] Reply : public detail::Pulled<Reply, std::string> {
  public:
    std::optional<std::string> next() {
        while (std::optional<Generated> generated = generation_.next()) {
            if (!generated->text.empty()) {
                return std::move(generated->text);
            }
        }
        return std::nullopt;
    }
    // Draws the rest of the reply and returns its text.
    std::string text() {
        std::string all;
        while (const std::optional<std::string> piece = next()) {
            all += *piece;
        }
        return all;
    }
    // The tokens under it, which may be asked for as well.
    Generation &generation() noexcept { return generation_; }

  private:
    friend class Session;
    explicit Reply(Generation generation) : generation_(std::move(generation)) {}
    Generation generation_;
};

} // namespace stasis
