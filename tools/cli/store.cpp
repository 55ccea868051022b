// stasis store: what a store holds, and moving sessions between it and files.
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

using Store = std::unique_ptr<stasis_store, Releaser<stasis_store_close>>;

struct StoreChoice {
    std::string uri, action;
    std::vector<std::string> names;
    bool overwrite = false;
    bool json = false;
};

// One call on the store: its options, while Ctrl-C ends it.
struct StoreCall {
    const StoreChoice &choice;
    Store store;
    Interrupt interrupt;
    Progress progress;
    stasis_store_call_options options;
    stasis_error error{};

    explicit StoreCall(const StoreChoice &given)
        : choice(given), progress(given.action + " " + given.uri) {
        stasis_store_options opening;
        stasis_store_options_init(&opening, sizeof opening);
        const bool makes = choice.action == "import"; // no other finds anything in a new store
        opening.flags = makes ? 0 : STASIS_STORE_EXISTING;
        stasis_store *made = nullptr;
        check(stasis_store_open(choice.uri.c_str(), &opening, &made, &error), error, choice.uri);
        store.reset(made);
        stasis_store_call_options_init(&options, sizeof options);
        options.flags = choice.overwrite ? STASIS_STORE_OVERWRITE : 0;
        options.cancel = interrupt.handle();
        options.progress = Progress::report;
        options.progress_user = &progress;
    }
    const char *name(size_t index) const { return choice.names[index].c_str(); }
    void require(stasis_status status) const { check(status, error, choice.uri); }
};

void list_sessions(StoreCall &call) {
    Json sessions = Json::array();
    call.require(stasis_store_list(
        call.store.get(), &call.options,
        [](void *user, const stasis_stored_session *session) -> int32_t {
            Json entry = {{"name", session->name}};
            if (session->damage != nullptr) {
                entry["damage"] = session->damage;
            } else {
                entry["position"] = session->position;
                entry["digest"] = hex(session->state);
                entry["root"] = hex(session->root);
                entry["bytes"] = session->bytes;
            }
            static_cast<Json *>(user)->push_back(std::move(entry));
            return 0;
        },
        &sessions, &call.error));
    if (call.choice.json) {
        print_json({{"sessions", sessions}});
        return;
    }
    for (const Json &session : sessions) {
        const std::string name = visible(session["name"].get<std::string>());
        print(session.contains("damage")
                  ? name + ": damaged: " + visible(session["damage"].get<std::string>()) + "\n"
                  : name + ": " + std::to_string(session["position"].get<uint64_t>()) +
                        " tokens, digest " + session["digest"].get<std::string>() + "\n");
    }
}

void import_file(StoreCall &call) {
    auto result = sized<stasis_store_result>();
    call.require(stasis_store_import(call.store.get(), call.name(0), call.name(1), &call.options,
                                     &result, &call.error));
    if (call.choice.json) {
        print_json({{"root", hex(result.root)},
                    {"digest", hex(result.state)},
                    {"written_bytes", result.bytes_written},
                    {"shared_bytes", result.bytes_shared}});
    } else {
        print(visible(call.choice.names[1]) + ": " + std::to_string(result.bytes_written) +
              " bytes written, " + std::to_string(result.bytes_shared) + " were there\n");
    }
}

void collect(StoreCall &call) {
    auto collected = sized<stasis_store_collected>();
    call.require(stasis_store_collect(call.store.get(), &call.options, &collected, &call.error));
    if (call.choice.json) {
        print_json({{"sessions", collected.sessions},
                    {"objects", collected.objects},
                    {"bytes", collected.bytes},
                    {"removed_objects", collected.removed_objects},
                    {"removed_bytes", collected.removed_bytes}});
    } else {
        print(std::to_string(collected.removed_objects) + " of " +
              std::to_string(collected.objects) + " objects removed, " +
              std::to_string(collected.removed_bytes) + " of " + std::to_string(collected.bytes) +
              " bytes\n");
    }
}

struct Action {
    const char *name;
    size_t names; // that it takes
    bool overwrites;
    void (*run)(StoreCall &call);
};

constexpr Action kActions[] = {
    {"list", 0, false, list_sessions},
    {"import", 2, true, import_file},
    {"export", 2, true,
     [](StoreCall &call) {
         call.require(stasis_store_export(call.store.get(), call.name(0), call.name(1),
                                          &call.options, &call.error));
     }},
    {"fork", 2, true,
     [](StoreCall &call) {
         call.require(stasis_store_fork(call.store.get(), call.name(0), call.name(1), &call.options,
                                        &call.error));
     }},
    {"remove", 1, false,
     [](StoreCall &call) {
         call.require(
             stasis_store_remove(call.store.get(), call.name(0), &call.options, &call.error));
     }},
    {"collect", 0, false, collect},
};

int run_store(const StoreChoice &choice) {
    for (const Action &action : kActions) {
        if (choice.action == action.name) {
            if (choice.names.size() != action.names) {
                throw Failure("store " + choice.action + " takes " + std::to_string(action.names) +
                              " names, not " + std::to_string(choice.names.size()) +
                              " (see stasis store --help)");
            }
            if (choice.overwrite && !action.overwrites) {
                throw Failure("store " + choice.action +
                              " overwrites nothing: without --overwrite");
            }
            StoreCall call(choice);
            action.run(call);
            return 0;
        }
    }
    throw Failure("store: there is no action '" + choice.action +
                  "', but list, import, export, fork, remove and collect");
}

} // namespace

void add_store(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<StoreChoice>();
    CLI::App *store_app = app.add_subcommand(
        "store", "what a store of sessions holds (list, collect), sessions from and to files "
                 "(import FILE NAME, export NAME FILE), and their names (fork, remove)");
    store_app->add_option("URI", choice->uri, "dir:PATH, sqlite:PATH or s3://BUCKET/PREFIX")
        ->required();
    store_app
        ->add_option("ACTION", choice->action,
                     "list, import FILE NAME, export NAME FILE, fork NAME NAME, remove NAME, "
                     "collect")
        ->required();
    store_app->add_option("NAME", choice->names, "what the action takes");
    store_app->add_flag("--overwrite", choice->overwrite,
                        "import, export, fork: in place of what is there");
    store_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    store_app->callback([=, &exit_code] { exit_code = run_store(*choice); });
}

} // namespace command
