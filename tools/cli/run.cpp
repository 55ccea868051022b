// stasis run: appends a prompt to a new or resumed session, generates and saves. Must not know chat
// templates: it only passes a name to the model.
#include <filesystem>
#include <memory>
#include <optional>

#include "tools/cli/commands.h"
#include "tools/cli/generation.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"
#include "tools/cli/trace.h"

namespace command {
namespace {

struct RunChoice {
    ModelChoice model;
    GenerationChoice generation;
    SaveChoice saving;
    LoadChoice loading;
    std::string prompt, tokens, tokens_file, resume, save, trace;
    uint64_t rewind = 0, capacity = 0;
    std::vector<std::string> evict; // "BEGIN:END"
    bool prompt_given = false, tokens_given = false, rewind_given = false;
    bool bos = false, special = false, json = false, trace_reads = false, recommended = false;
};

std::vector<stasis_token> prompt_tokens(const stasis_model *model, const RunChoice &choice) {
    if (choice.prompt_given) {
        return tokenize(model, choice.prompt,
                        (choice.bos ? STASIS_TOKENIZE_BOS : 0) |
                            (choice.special ? STASIS_TOKENIZE_SPECIAL : 0));
    }
    std::vector<stasis_token> tokens = given_tokens(choice.tokens, choice.tokens_file);
    if (choice.bos) {
        const int64_t bos = model_info(model).bos;
        if (bos < 0) {
            throw Failure("--bos: the model has no beginning-of-sequence token");
        }
        tokens.insert(tokens.begin(), static_cast<stasis_token>(bos));
    }
    return tokens;
}

// Appends in pieces of --chunk, as separate calls. Returns the tokens appended before a
// cancellation.
size_t append(stasis_session *session, const std::vector<stasis_token> &tokens, uint32_t chunk,
              stasis_cancel *cancel) {
    const size_t piece_max = chunk != 0 ? chunk : tokens.size();
    for (size_t at = 0; at < tokens.size();) {
        const size_t count = std::min(piece_max, tokens.size() - at);
        stasis_run_options options;
        stasis_run_options_init(&options, sizeof options);
        options.chunk = chunk;
        options.cancel = cancel;
        Progress progress("prefill");
        options.progress = Progress::report;
        options.progress_user = &progress;
        stasis_error error{};
        const stasis_status status =
            stasis_session_append(session, tokens.data() + at, count, &options, &error);
        if (status == STASIS_CANCELLED) {
            return at;
        }
        check(status, error, "prompt");
        at += count;
    }
    return tokens.size();
}

// Removes the positions after `position`, recomputing if necessary.
void rewind(stasis_session *session, uint64_t position, stasis_cancel *cancel) {
    auto options = sized<stasis_run_options>();
    options.cancel = cancel;
    Progress progress("rewind");
    options.progress = Progress::report;
    options.progress_user = &progress;
    stasis_error error{};
    check(stasis_session_rewind(session, position, STASIS_REWIND_RECOMPUTE, &options, &error),
          error, "--rewind");
}

// Hides positions from every later token.
void evict(stasis_session *session, const std::vector<std::string> &ranges) {
    for (const std::string &range : ranges) {
        unsigned long long begin = 0, end = 0;
        char rest = 0;
        if (std::sscanf(range.c_str(), "%llu:%llu%c", &begin, &end, &rest) != 2 ||
            range.find('-') != std::string::npos) {
            throw Failure("--evict: expected BEGIN:END, found " + range);
        }
        stasis_error error{};
        check(stasis_session_evict(session, begin, end, &error), error, "--evict " + range);
    }
}

// Returns the log-probabilities of each new token and of the most likely tokens at its position.
Json likelihoods_json(const Reply &reply) {
    Json list = Json::array();
    for (size_t i = 0; i < reply.likelihoods.size(); ++i) {
        const Likelihood &each = reply.likelihoods[i];
        Json best = Json::array();
        for (size_t j = 0; j < each.best.size(); ++j) {
            best.push_back({{"token", each.best_tokens[j]}, {"log_probability", each.best[j]}});
        }
        list.push_back({{"token", reply.tokens.at(i)},
                        {"log_probability", each.log_probability},
                        {"best", best}});
    }
    return list;
}

void report(const RunChoice &choice, const std::vector<stasis_token> &prompt, const Reply &reply,
            const stasis_session *session, double prefill_seconds, double decode_seconds) {
    const uint64_t position = position_of(session);
    const std::string digest = digest_of(session);
    if (choice.json) {
        Json object = {{"prompt_tokens", prompt},
                       {"tokens", reply.tokens},
                       {"text", reply.text},
                       {"position", position},
                       {"digest", digest},
                       {"stop_reason", stop_reason_name(reply.stop_reason)},
                       {"prefill_seconds", prefill_seconds},
                       {"decode_seconds", decode_seconds}};
        if (choice.generation.log_probabilities > 0) {
            object["log_probabilities"] = likelihoods_json(reply);
        }
        add_drafted(object, choice.generation, reply);
        print_json(object);
        return;
    }

    // A model without a tokenizer has no text to stream; its tokens are shown instead.
    print(reply.text.empty() ? join_tokens(reply.tokens) + "\n" : "\n");
    char line[200];
    std::snprintf(line, sizeof line,
                  "[%zu tokens in %.3f s, %zu new in %.3f s, %s; position %llu, digest %.16s]",
                  prompt.size(), prefill_seconds, reply.tokens.size(), decode_seconds,
                  stop_reason_name(reply.stop_reason), static_cast<unsigned long long>(position),
                  digest.c_str());
    say(line);
    if (choice.generation.drafts()) {
        std::snprintf(line, sizeof line, "[%llu of %llu drafted tokens accepted, %llu passes%s]",
                      static_cast<unsigned long long>(reply.accepted),
                      static_cast<unsigned long long>(reply.drafted),
                      static_cast<unsigned long long>(reply.passes),
                      reply.draft_failures == 0 ? "" : "; the drafter failed");
        say(line);
    }
}

// Returns the new or resumed session, traced if `recorder` is not null.
Session open_session(stasis_model *model, const RunChoice &choice, stasis_cancel *cancel,
                     Recorder *recorder) {
    auto trace = sized<stasis_trace_options>();
    if (recorder != nullptr) {
        trace = recorder->options();
    }
    if (!choice.resume.empty()) {
        LoadChoice loading = choice.loading;
        loading.trace = recorder != nullptr ? &trace : nullptr;
        return load_session(model, choice.resume, cancel, loading);
    }
    Session session = create_session(model, STASIS_DOMAIN_COMMON, choice.capacity);
    if (recorder != nullptr) {
        stasis_error error{};
        check(stasis_session_set_trace(session.get(), &trace, &error), error, "--trace");
    }
    return session;
}

// Throws Failure before anything is computed if the save would be refused in the end.
void check_saved_file(const RunChoice &choice, const stasis_session *session) {
    const std::string &path = choice.save;
    // The digest of a session from a stream is that of its file, unless its profile was another:
    // then only the library has it and decides when it saves.
    const bool unknown = is_stream(choice.resume) && choice.loading.any_profile;
    if (unknown || !std::filesystem::exists(path)) {
        return;
    }
    const auto digest_in = [](const std::string &file, uint64_t &position) {
        const Snapshot snapshot = open_snapshot(file);
        const stasis_snapshot_info info = snapshot_info(snapshot.get(), file);
        position = info.position;
        return hex(info.digest);
    };

    std::string reason = "it holds a state that this run has not resumed";
    try {
        uint64_t position = 0;
        const std::string there = digest_in(path, position);
        if (position == 0) {
            return;
        }
        const bool of_file = !choice.resume.empty() && !is_stream(choice.resume);
        if (there == (of_file ? digest_in(choice.resume, position) : digest_of(session))) {
            return;
        }
    } catch (const Failure &failure) {
        reason = failure.what();
    }
    throw Failure("--save: " + path + " is written over with --replace alone: " + reason);
}

int run(const RunChoice &choice) {
    if (!choice.prompt_given && !choice.tokens_given && !choice.bos && choice.resume.empty()) {
        throw Failure("nothing to run: give --prompt, --tokens, --tokens-file or --resume");
    }
    // Refuse outputs that cannot be written before the model is opened.
    std::optional<OutputForSnapshot> output;
    if (is_stream(choice.save)) {
        output.emplace();
    } else if (!choice.save.empty()) {
        check_target("--save", choice.save, Special::refused);
    }
    if (!choice.trace.empty()) {
        check_target("--trace", choice.trace, Special::allowed);
        if (choice.trace == choice.save) {
            throw Failure("--trace: " + choice.trace + ": --save writes to this file");
        }
    }
    Interrupt interrupt;
    const Model model = open_model(choice.model, interrupt.handle());
    std::vector<stasis_token> prompt = prompt_tokens(model.get(), choice);
    std::unique_ptr<Recorder> recorder;
    if (!choice.trace.empty()) {
        recorder = std::make_unique<Recorder>(choice.trace, choice.trace_reads);
    }
    const Session session = open_session(model.get(), choice, interrupt.handle(), recorder.get());
    if (!output && !choice.save.empty() && !choice.saving.replace) {
        check_saved_file(choice, session.get());
    }
    if (choice.rewind_given) {
        rewind(session.get(), choice.rewind, interrupt.handle());
    }
    if (prompt.empty() && choice.generation.tokens_max > 0 && position_of(session.get()) == 0) {
        throw Failure("nothing to go on: the prompt is empty and " +
                      (choice.resume.empty() ? "no session is resumed"
                                             : "so is the session in " + choice.resume));
    }
    if (choice.recommended || !choice.generation.given.empty()) {
        apply_sampling(session.get(), choice.generation,
                       choice.recommended ? model.get() : nullptr);
    }
    apply_constraint(session.get(), choice.generation.constraint, interrupt.handle());
    apply_draft(session.get(), choice.generation, choice.model, model.get(),
                interrupt.handle());

    const Stopwatch prefill;
    const size_t appended =
        append(session.get(), prompt, choice.generation.chunk, interrupt.handle());
    const double prefill_seconds = prefill.seconds();

    Reply reply;
    const Stopwatch decode;
    if (appended < prompt.size()) {
        prompt.resize(appended);
        reply.stop_reason = STASIS_STOP_CANCELLED;
    } else {
        evict(session.get(), choice.evict);
        reply = generate(session.get(), choice.generation, interrupt.handle(), !choice.json);
    }
    const double decode_seconds = decode.seconds();
    if (output) {
        write_session(session.get(), *output, choice.saving);
    } else if (!choice.save.empty()) {
        save_session(session.get(), choice.save, choice.saving);
    }
    if (recorder) {
        recorder->finish();
    }
    report(choice, prompt, reply, session.get(), prefill_seconds, decode_seconds);
    return 0;
}

} // namespace

void add_run(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<RunChoice>();
    CLI::App *run_app =
        app.add_subcommand("run", "append a prompt to a new or resumed session, generate, save");
    run_app->footer("Nothing is added to the prompt that was not asked for. Greedy unless a "
                    "temperature is given; a resumed\nsession keeps the sampling settings of its "
                    "file unless any are given.\n");
    add_model(*run_app, choice->model);

    // The prompt.
    choice->generation.tokens_max = 128;
    CLI::Option *prompt = run_app->add_option("--prompt", choice->prompt, "text of the prompt");
    CLI::Option *tokens = run_app->add_option("--tokens", choice->tokens, "ids: 1,2,3");
    CLI::Option *file = add_path(*run_app, "--tokens-file", choice->tokens_file,
                                 "file of ids, separated by commas or white space");
    prompt->excludes(tokens)->excludes(file);
    tokens->excludes(file);
    run_app->add_flag("--bos", choice->bos, "begin the prompt with the model's bos token");
    run_app->add_flag("--special", choice->special,
                      "markers in the text of --prompt become their special tokens");
    run_app->add_option("--evict", choice->evict,
                        "BEGIN:END, positions that no later token sees, once the prompt is in");

    // The session: where it comes from, and its file.
    CLI::Option *resume = add_path(*run_app, "--resume", choice->resume,
                                   "go on with the session in this file; -: from standard input");
    CLI::Option *rewind =
        add_count(*run_app, "--rewind", choice->rewind,
                  "go on from this position of it instead, without what came after")
            ->needs(resume);
    add_count(*run_app, "--capacity", choice->capacity,
              "most positions of a new session; 0: the model's context")
        ->excludes(resume);
    add_load_options(*run_app, choice->loading);
    add_path(*run_app, "--save", choice->save,
             "save the session to this file at the end; -: to standard output, all else then goes "
             "to standard error");
    CLI::Option *trace = add_path(*run_app, "--trace", choice->trace,
                                  "record what happens to the KV cache, a JSON object a line");
    run_app->add_flag("--trace-reads", choice->trace_reads, "with --trace: reads of pages as well")
        ->needs(trace);

    // Generation, computation and output.
    add_generation_options(*run_app, choice->generation);
    run_app->add_flag("--recommended", choice->recommended,
                      "draw as the model's files recommend, but for what is given, as chat does");
    add_save_options(*run_app, choice->saving);
    add_compute_options(*run_app, choice->model);
    add_template_option(*run_app, choice->model);
    CLI::Option *json =
        run_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    add_count(*run_app, "--log-probs", choice->generation.log_probabilities,
              "with --json: log-probabilities of each new token and of the N most likely in its "
              "place")
        ->needs(json);

    run_app->callback([=, &exit_code] {
        choice->prompt_given = prompt->count() > 0;
        choice->rewind_given = rewind->count() > 0;
        choice->tokens_given = tokens->count() + file->count() > 0;
        exit_code = run(*choice);
    });
}

} // namespace command
