// Generation with a callback: reads stop conditions, passes tokens on as they are drawn and reports
// the outcome; see stasis_generate.h. Must not know how tokens are drawn.
#include <optional>

#include "abi/generation.h"
#include "abi/trace.h"
#include "runtime/session/session.h"

namespace stasis::abi {

namespace {

static_assert(static_cast<uint32_t>(StopReason::length) == STASIS_STOP_LENGTH);
static_assert(static_cast<uint32_t>(StopReason::end_token) == STASIS_STOP_END_TOKEN);
static_assert(static_cast<uint32_t>(StopReason::stop_string) == STASIS_STOP_STRING);
static_assert(static_cast<uint32_t>(StopReason::callback) == STASIS_STOP_CALLBACK);
static_assert(static_cast<uint32_t>(StopReason::cancelled) == STASIS_STOP_CANCELLED);
static_assert(static_cast<uint32_t>(StopReason::no_token) == STASIS_STOP_NO_TOKEN);
static_assert(static_cast<uint32_t>(StopReason::timeout) == STASIS_STOP_TIMEOUT);

// The caller's callback, wrapped for the length of a call. It runs between two tokens, when the
// call does not hold the session.
struct Hearer {
    const Caller &caller;
    const stasis_generate_options &given;

    // Converts a token that was generated to the host's event. Returns false if the host asks to
    // stop.
    static bool hear(void *user, const Generated &generated) {
        const Hearer &self = *static_cast<const Hearer *>(user);
        const stasis_generated event = to_abi(generated);
        return self.caller.lend_all(
                   [&] { return self.given.callback(self.given.callback_user, &event); }) == 0;
    }
};

// Writes the result of a generation to the caller's struct, however the call ends.
class Outcome {
  public:
    explicit Outcome(stasis_generate_result *to) : to_(to) {
        if (to_ != nullptr) {
            size_ = struct_size(to_, sizeof *to_, "result");
        }
    }
    ~Outcome() {
        if (to_ != nullptr) {
            to_->struct_size = size_; // as checked before a callback could change it
            write_struct(to_abi(result), to_, "result");
        }
    }
    Outcome(const Outcome &) = delete;
    Outcome &operator=(const Outcome &) = delete;

    GenerateResult result;

  private:
    stasis_generate_result *to_;
    uint32_t size_ = 0;
};

// A session's generation for the length of a call, which holds the session only for each token.
class OpenGeneration {
  public:
    OpenGeneration(stasis_session &session, const Caller &caller,
                   const stasis_generate_options *options)
        : session_(session), caller_(caller) {
        const SessionUse use(session, caller, Use::begins);
        given_ = read_struct(options, "options");
        generation_.emplace(session, given_);
        generation_->open();
    }
    ~OpenGeneration() {
        const SessionUse use(session_, caller_, Use::generates, true);
        generation_->leave();
    }
    OpenGeneration(const OpenGeneration &) = delete;
    OpenGeneration &operator=(const OpenGeneration &) = delete;

    // Throws as Generation::next.
    void run(GenerateResult &result) {
        CallWatch watch(caller_, generation_->cancel.get(), nullptr, nullptr,
                        generation_->deadline);
        Hearer hearer{caller_, given_};
        GenerateOptions told;
        told.callback = given_.callback != nullptr ? Hearer::hear : nullptr;
        told.callback_user = &hearer;
        const auto next = [&](Generated &event) { // waits for readers, which wait for nobody
            const SessionUse use(session_, caller_, Use::generates, true);
            return generation_->run.next(watch.watch(), event);
        };
        tell_all(generation_->run, told, next, result);
    }

  private:
    stasis_session &session_;
    const Caller &caller_;
    stasis_generate_options given_{};
    std::optional<stasis_generation> generation_;
};

} // namespace

GenerateOptions read_generate_options(const stasis_generate_options &given) {
    require_flags(given.flags, STASIS_GENERATE_IGNORE_END);
    require_zero(given.reserved, "options");
    require_array(given.stop_tokens, given.stop_token_count, "options.stop_tokens");
    require_array(given.stop_strings, given.stop_string_count, "options.stop_strings");
    GenerateOptions options;
    options.tokens_max = given.tokens_max;
    options.ignore_end = (given.flags & STASIS_GENERATE_IGNORE_END) != 0;
    for (size_t i = 0; i < given.stop_token_count; ++i) {
        options.stop_tokens.push_back(given.stop_tokens[i]);
    }
    for (size_t i = 0; i < given.stop_string_count; ++i) {
        require(given.stop_strings[i], "options.stop_strings element");
        options.stop_strings.emplace_back(given.stop_strings[i]);
        if (options.stop_strings.back().empty()) {
            fail(Status::invalid_argument, "options.stop_strings[%zu] is empty", i);
        }
    }
    options.log_probabilities = given.log_probability_count;
    return options;
}

stasis_generated to_abi(const Generated &generated) {
    stasis_generated event{};
    event.struct_size = sizeof event;
    event.token = generated.token;
    event.position = generated.position;
    event.text = generated.text.data();
    event.length = generated.text.size();
    event.last = generated.last ? 1 : 0;
    if (const LogProbabilities *likely = generated.likely; likely != nullptr) {
        event.log_probability = likely->token;
        event.log_probability_count = static_cast<uint32_t>(likely->best.size());
        event.best_tokens = likely->best_tokens.data();
        event.best_log_probabilities = likely->best.data();
    }
    return event;
}

stasis_generate_result to_abi(const GenerateResult &result) {
    stasis_generate_result own{};
    own.stop_reason = static_cast<uint32_t>(result.reason);
    own.begin = result.begin;
    own.count = result.count;
    own.drafted = result.drafted;
    own.accepted = result.accepted;
    own.passes = result.passes;
    own.draft_failures = result.draft_failures;
    return own;
}

void require_in_time(const GenerateResult &result) {
    if (result.reason == StopReason::cancelled) {
        fail(Status::cancelled, "cancelled by the caller after %llu tokens", Number{result.count});
    }
    if (result.reason == StopReason::timeout) {
        fail(Status::timeout, "the generation's time was over after %llu tokens",
             Number{result.count});
    }
}

} // namespace stasis::abi

using namespace stasis::abi;
using stasis::Status;

void stasis_generate_options_init(stasis_generate_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_session_generate(stasis_session *session,
                                      const stasis_generate_options *options,
                                      stasis_generate_result *result, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        Outcome outcome(result);
        OpenGeneration(*session, caller, options).run(outcome.result);
        // The tokens that were decoded before a stop stay, so the outcome is complete; only the
        // status differs.
        const auto count = static_cast<stasis::Number>(outcome.result.count);
        if (outcome.result.reason == stasis::StopReason::callback) {
            fail(Status::stopped, "the callback asked to stop after %llu tokens", count);
        }
        require_in_time(outcome.result);
    });
}
