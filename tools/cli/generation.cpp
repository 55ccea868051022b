// Generating, loading and saving sessions, for `run` and `chat`; see generation.h. Must not know
// their other options.
#include "tools/cli/generation.h"

#include <exception>
#include <limits>

#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {

namespace {

constexpr float kAboveZero = std::numeric_limits<float>::denorm_min();
constexpr float kFinite = std::numeric_limits<float>::max();

// Adds options that set how tokens are drawn, each a field of stasis_sampling. An option that is
// given adds a function to `given` that copies its field.
class SamplingOptions {
  public:
    SamplingOptions(CLI::App &app, GenerationChoice &choice) : app_(app), choice_(choice) {}

    template <typename Unsigned>
    void count(const char *name, Unsigned stasis_sampling::*field, const std::string &help) {
        given(add_count(app_, name, choice_.sampling.*field, help), field);
    }
    void number(const char *name, float stasis_sampling::*field, const std::string &help,
                const Range<float> &range) {
        given(add_number<float>(app_, name, choice_.sampling.*field, help, range), field);
    }
    void breakers(const char *name, const std::string &help) {
        const auto parse = [name, &choice = choice_](const CLI::results_t &list) {
            choice.dry_breakers = parse_tokens(list.at(0), name);
            choice.sampling.dry_breakers = choice.dry_breakers.data();
            choice.sampling.dry_breaker_count = static_cast<uint32_t>(choice.dry_breakers.size());
            return true;
        };
        CLI::Option *option = app_.add_option(name, parse, help)->type_name("IDS");
        given(option, &stasis_sampling::dry_breakers);
        given(option, &stasis_sampling::dry_breaker_count);
    }

  private:
    template <typename Field> void given(CLI::Option *option, Field stasis_sampling::*field) {
        option->each([&choice = choice_, field](const std::string &) {
            choice.given.push_back([field](const stasis_sampling &from, stasis_sampling &to) {
                to.*field = from.*field;
            });
        });
    }

    CLI::App &app_;
    GenerationChoice &choice_;
};

void add_repetition_options(SamplingOptions &options) {
    options.number("--repetition-penalty", &stasis_sampling::repetition_penalty,
                   "divide logits of recent tokens by N; 1: off",
                   {kAboveZero, kFinite, "a finite number above 0"});
    options.number("--dry-multiplier", &stasis_sampling::dry_multiplier,
                   "DRY: a token that makes a repetition longer loses N and more; 0: off",
                   {0, kFinite, "a finite number from 0 on"});
    options.number("--dry-base", &stasis_sampling::dry_base,
                   "each further token of the repetition makes that N times as much (1.75)",
                   {1, kFinite, "a finite number from 1 on"});
    options.count("--dry-allowed-length", &stasis_sampling::dry_allowed_length,
                  "repetitions of fewer than N tokens cost nothing; 0: 2");
    options.count("--dry-range", &stasis_sampling::dry_range, "look at the last N tokens; 0: all");
    options.breakers("--dry-breakers", "tokens that no repetition goes over: 1,2,3");
}

void add_sampling_options(SamplingOptions &options) {
    options.count("--seed", &stasis_sampling::seed, "draws depend on it and the position alone");
    options.number("--temperature", &stasis_sampling::temperature, "0: greedy",
                   {0, kFinite, "a finite number from 0 on"});
    options.number("--top-n-sigma", &stasis_sampling::top_n_sigma,
                   "leave out what is N standard deviations below the best logit; 0: off",
                   {0, kFinite, "a finite number from 0 on"});
    options.count("--top-k", &stasis_sampling::top_k, "draw among the N most likely; 0: all");
    options.number("--typical-p", &stasis_sampling::typical_p,
                   "draw among the most typical that reach N together; 1: all",
                   {kAboveZero, 1, "a number above 0 and at most 1"});
    options.number("--top-p", &stasis_sampling::top_p,
                   "draw among the most likely that reach N together; 1: all",
                   {kAboveZero, 1, "a number above 0 and at most 1"});
    options.number("--min-p", &stasis_sampling::min_p,
                   "leave out what is less than N times as likely as the best",
                   {0, 1, "a number from 0 to 1"});
    options.number("--xtc-probability", &stasis_sampling::xtc_probability,
                   "XTC: with this probability leave out all likely tokens but the last; 0: off",
                   {0, 1, "a number from 0 to 1"});
    options.number("--xtc-threshold", &stasis_sampling::xtc_threshold,
                   "those of probability N and more are likely (0.1)",
                   {kAboveZero, 0.5F, "a number above 0 and at most 0.5"});
    options.count("--min-keep", &stasis_sampling::min_keep,
                  "--typical-p, --top-p, --min-p and XTC leave N");
}

} // namespace

void add_generation_options(CLI::App &app, GenerationChoice &choice) {
    stasis_sampling_init(&choice.sampling, sizeof choice.sampling);
    add_count(app, "-n", choice.tokens_max, "at most N new tokens; 0: append only")
        ->default_str(std::to_string(choice.tokens_max));
    SamplingOptions options(app, choice);
    add_sampling_options(options);
    add_repetition_options(options);
    add_constraint_options(app, choice.constraint);
    app.add_option("--stop", choice.stop, "end before this text; may be given several times")
        ->allow_extra_args(false);
    app.add_flag("--ignore-eos", choice.ignore_end, "end tokens do not end it");
    CLI::Option *draft =
        add_path(app, "--draft", choice.draft,
                 "a smaller model with the same tokenizer guesses ahead: the same tokens, sooner")
            ->type_name("MODEL");
    app.add_flag("--draft-lookup", choice.draft_lookup,
                 "guess ahead what followed the same tokens before: likewise")
        ->excludes(draft);
    app.add_flag("--draft-mtp", choice.draft_mtp,
                 "the model's own MTP head guesses ahead: likewise")
        ->excludes(draft)
        ->excludes("--draft-lookup");
    add_count(app, "--chunk", choice.chunk, "compute N positions together");
}

void add_save_options(CLI::App &app, SaveChoice &choice) {
    add_codec(app, choice.codec, "for keys and values that are saved (default: raw)");
    add_keep(app, choice.keep);
    app.add_flag("--replace", choice.replace,
                 "put the saved file in the place of any other; without it a "
                 "file must hold what was resumed or saved last");
}

const char *stop_reason_name(uint32_t reason) {
    switch (reason) {
    case STASIS_STOP_END_TOKEN:
        return "end_token";
    case STASIS_STOP_STRING:
        return "stop_string";
    case STASIS_STOP_CALLBACK:
        return "stopped";
    case STASIS_STOP_CANCELLED:
        return "cancelled";
    case STASIS_STOP_NO_TOKEN:
        return "no_token";
    default:
        return "length";
    }
}

stasis_sampling chosen_sampling(const GenerationChoice &choice, const stasis_model *recommending) {
    auto sampling = sized<stasis_sampling>();
    stasis_error error{};
    if (recommending != nullptr) {
        check(stasis_model_recommended_sampling(recommending, &sampling, &error), error,
              "recommended sampling");
    }
    for (const auto &give : choice.given) {
        give(choice.sampling, sampling);
    }
    return sampling;
}

void apply_sampling(stasis_session *session, const GenerationChoice &choice,
                    const stasis_model *recommending) {
    const stasis_sampling sampling = chosen_sampling(choice, recommending);
    stasis_error error{};
    check(stasis_session_set_sampling(session, &sampling, &error), error, "sampling");
}

void apply_draft(stasis_session *session, const GenerationChoice &choice, const ModelChoice &model,
                 stasis_model *opened, stasis_cancel *cancel) {
    if (!choice.drafts()) {
        return;
    }
    Model small;
    stasis_model *draft = choice.draft_mtp ? opened : nullptr;
    if (choice.draft_mtp && model_info(opened).mtp_bytes == 0) {
        throw Failure("--draft-mtp: " + model.path + " has no MTP head");
    }
    if (!choice.draft.empty()) {
        ModelChoice other = model;
        other.path = choice.draft;
        small = open_model(other, cancel);
        draft = small.get();
    }
    stasis_draft_options options;
    stasis_draft_options_init(&options, sizeof options);
    stasis_error error{};
    check(stasis_session_set_draft(session, draft, &options, &error), error, "--draft");
}

void add_drafted(Json &object, const GenerationChoice &choice, const Reply &reply) {
    if (choice.drafts()) {
        object["drafted"] = reply.drafted;
        object["accepted"] = reply.accepted;
        object["passes"] = reply.passes;
        object["draft_failures"] = reply.draft_failures;
    }
}

namespace {

// Collects a reply. Exceptions must not cross the C call, so the first one is stored.
struct Receiver {
    std::string text;
    std::vector<Likelihood> likelihoods;
    bool stream = false;
    std::exception_ptr failure;

    static int32_t receive(void *user, const stasis_generated *generated) noexcept {
        auto &self = *static_cast<Receiver *>(user);
        try {
            const std::string_view piece(generated->text, generated->length);
            self.text += piece;
            if (const uint32_t count = generated->log_probability_count; count > 0) {
                self.likelihoods.push_back(
                    {generated->log_probability,
                     {generated->best_tokens, generated->best_tokens + count},
                     {generated->best_log_probabilities,
                      generated->best_log_probabilities + count}});
            }
            if (self.stream && !piece.empty()) {
                print(piece);
            }
            return 0;
        } catch (...) {
            self.failure = std::current_exception();
            return 1;
        }
    }
};

} // namespace

Reply generate(stasis_session *session, const GenerationChoice &choice, stasis_cancel *cancel,
               bool stream) {
    if (choice.tokens_max == 0) { // to the library it would mean "no limit"
        return {};
    }
    // Options for the library.
    Receiver receiver;
    receiver.stream = stream;
    std::vector<const char *> stop_strings;
    for (const std::string &text : choice.stop) {
        stop_strings.push_back(text.c_str());
    }
    stasis_generate_options options;
    stasis_generate_options_init(&options, sizeof options);
    options.flags = choice.ignore_end ? STASIS_GENERATE_IGNORE_END : 0;
    options.tokens_max = choice.tokens_max;
    options.stop_strings = stop_strings.data();
    options.stop_string_count = stop_strings.size();
    options.callback = Receiver::receive;
    options.callback_user = &receiver;
    options.cancel = cancel;
    options.log_probability_count = choice.log_probabilities;

    // Generate. A failure of the callback is more specific than the status that it causes.
    auto result = sized<stasis_generate_result>();
    stasis_error error{};
    const stasis_status status = stasis_session_generate(session, &options, &result, &error);
    if (receiver.failure) {
        std::rethrow_exception(receiver.failure);
    }
    if (status != STASIS_CANCELLED) {
        check(status, error, "generating");
    }

    // The reply, with the tokens as the session's log has them.
    Reply reply;
    reply.drafted = result.drafted;
    reply.accepted = result.accepted;
    reply.passes = result.passes;
    reply.draft_failures = result.draft_failures;
    reply.text = std::move(receiver.text);
    reply.likelihoods = std::move(receiver.likelihoods);
    reply.stop_reason = status == STASIS_CANCELLED ? STASIS_STOP_CANCELLED : result.stop_reason;
    if (result.count > 0) {
        reply.tokens = fetch<stasis_token>(
            [&](stasis_token *tokens, size_t capacity, size_t *count, stasis_error *problem) {
                return stasis_session_tokens(session, result.begin, tokens, nullptr, capacity,
                                             count, problem);
            },
            "reading tokens");
    }
    return reply;
}

Session create_session(stasis_model *model, uint64_t domain, uint64_t capacity) {
    stasis_session_options options;
    stasis_session_options_init(&options, sizeof options);
    options.domain = domain;
    options.capacity = capacity;
    stasis_session *session = nullptr;
    stasis_error error{};
    check(stasis_session_create(model, &options, &session, &error), error, "new session");
    return Session(session);
}

void add_load_options(CLI::App &app, LoadChoice &choice) {
    app.add_flag("--any-profile", choice.any_profile,
                 "resume also what was computed under another profile; it cannot be verified then");
    app.add_flag("--accept-older", choice.accept_older,
                 "resume also the state before the last one saved, where that is damaged");
}

namespace {

// Returns whether the file would open with --accept-older.
bool has_older(const std::string &path) {
    try {
        return snapshot_info(open_snapshot(path).get(), path).older != 0;
    } catch (const Failure &) {
        return false;
    }
}

} // namespace

Session load_session(stasis_model *model, const std::string &path, stasis_cancel *cancel,
                     const LoadChoice &choice) {
    stasis_session_options own;
    stasis_session_options_init(&own, sizeof own);
    own.domain = STASIS_DOMAIN_PRIVATE;
    stasis_load_options options;
    stasis_load_options_init(&options, sizeof options);
    Progress progress("resuming " + path);
    options.progress = Progress::report;
    options.progress_user = &progress;
    options.cancel = cancel;
    options.flags = (choice.any_profile ? STASIS_LOAD_ANY_PROFILE : 0) |
                    (choice.accept_older ? STASIS_LOAD_ACCEPT_OLDER : 0);
    options.session = choice.alone ? &own : nullptr;
    options.trace = choice.trace;

    stasis_session *session = nullptr;
    stasis_error error{};
    if (is_stream(path)) {
        const stasis_source source = input_source();
        check(stasis_session_read(model, &source, &options, &session, &error), error,
              "standard input");
    } else {
        const stasis_status status =
            stasis_session_load(model, path.c_str(), &options, &session, &error);
        if (status == STASIS_CORRUPT && !choice.accept_older && has_older(path)) {
            throw Failure(std::string(error.message) + ": --accept-older (CORRUPT)");
        }
        check(status, error, path);
    }
    return Session(session);
}

namespace {

stasis_save_options save_options(const SaveChoice &choice, Progress &progress) {
    stasis_save_options options;
    stasis_save_options_init(&options, sizeof options);
    options.flags = choice.replace ? STASIS_SAVE_REPLACE : STASIS_SAVE_IF_MATCH;
    options.codec = choice.codec;
    options.keep = choice.keep;
    options.progress = Progress::report;
    options.progress_user = &progress;
    return options;
}

} // namespace

void write_session(stasis_session *session, OutputForSnapshot &output, const SaveChoice &choice) {
    Progress progress("writing the snapshot");
    const stasis_save_options options = save_options(choice, progress);
    const stasis_sink sink = output.sink();
    stasis_error error{};
    check(stasis_session_write(session, &sink, &options, &error), error, "standard output");
}

void save_session(stasis_session *session, const std::string &path, const SaveChoice &choice) {
    Progress progress("saving " + path);
    const stasis_save_options options = save_options(choice, progress);
    stasis_error error{};
    check(stasis_session_save(session, path.c_str(), &options, &error), error, path);
}

uint64_t position_of(const stasis_session *session) {
    auto info = sized<stasis_session_info>();
    stasis_error error{};
    check(stasis_session_get_info(session, &info, &error), error, "session");
    return info.position;
}

std::string digest_of(const stasis_session *session) {
    stasis_digest digest{};
    stasis_error error{};
    check(stasis_session_digest(session, &digest, &error), error, "digest");
    return hex(digest);
}

} // namespace command
