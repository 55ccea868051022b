// stasis serve: a server of models over HTTP, whose sessions are kept in a store. Options, signals,
// and the order in which the parts begin and end; the parts are in tools/serve.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/cli/commands.h"
#include "tools/cli/model.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"
#include "tools/serve/engine/routes.h"
#include "tools/serve/http/log.h"

namespace command {
namespace {

struct ServeChoice {
    std::vector<std::string> models;
    ModelChoice model; // but for the path
    std::string store, listen = "127.0.0.1:8080", keys;
    uint32_t shutdown_seconds = 30;
    bool quiet = false;
    serve::EngineLimits limits;
    serve::http::Limits http;
};

// "models/gemma-3-1b/" is called "gemma-3-1b", "a/b.gguf" "b".
std::string name_of(std::string path) {
    while (path.size() > 1 && path.back() == '/') {
        path.pop_back();
    }
    path = path.substr(path.rfind('/') + 1);
    return path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : path;
}

std::vector<std::unique_ptr<serve::ServedModel>> open_models(const ServeChoice &choice) {
    std::vector<std::unique_ptr<serve::ServedModel>> models;
    for (const std::string &path : choice.models) {
        ModelChoice one = choice.model;
        one.path = path;
        for (const auto &other : models) {
            if (other->name() == name_of(path)) {
                throw Failure("two models are called '" + other->name() + "'");
            }
        }
        models.push_back(std::make_unique<serve::ServedModel>(
            name_of(path), open_model(one, nullptr), choice.limits.sessions_max));
    }
    return models;
}

serve::Store open_store(const std::string &uri) {
    if (uri.empty()) {
        return nullptr;
    }
    stasis_store *made = nullptr;
    stasis_error error{};
    check(stasis_store_open(uri.c_str(), nullptr, &made, &error), error, uri);
    return serve::Store(made);
}

int ending_pipe[2] = {-1, -1}; // written by the handler of signals

void ask_to_end(int) {
    const int saved = errno;
    const char byte = 0;
    if (write(ending_pipe[1], &byte, 1) < 0) { // full: asked often enough
    }
    errno = saved;
}

void wait_for_signal() {
    char byte = 0;
    while (read(ending_pipe[0], &byte, 1) < 0 && errno == EINTR) {
    }
}

// Ends the process, whatever it waits for: what it has not answered is cut, as by a kill.
void end_now() {
    say("ended before all was done: the store does not answer, or a pass takes long");
    std::_Exit(1);
}

// Ends the server: at the first signal in order, at the second at once.
void wait_for_end(serve::http::Server &server, serve::Engine &engine, uint32_t seconds) {
    using Clock = std::chrono::steady_clock;
    wait_for_signal();
    const auto began = Clock::now();
    say("stopping: no new requests; running ones (" + std::to_string(engine.refuse_all()) +
        ") have " + std::to_string(seconds) + " seconds");
    server.stop_accepting();
    std::thread([] {
        wait_for_signal();
        std::_Exit(1);
    }).detach();
    if (!engine.close(seconds)) {
        end_now();
    }
    // Last bytes are on their way.
    const auto until =
        std::max(began + std::chrono::seconds(seconds), Clock::now() + std::chrono::seconds(5));
    while (server.counts().connections > 0 && Clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::thread([] { // what workers do for others than replies
        std::this_thread::sleep_for(std::chrono::seconds(10));
        end_now();
    })
        .detach();
    server.stop();
}

// Lets the process have as many files as it may, and fewer connections where these are too few: who
// comes to a server without descriptors would wait, and is told instead.
void limit_connections(serve::http::Limits &limits) {
    constexpr rlim_t kOthers = 256; // models, the store, what libraries open
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return;
    }
    const rlim_t wanted = limits.connections + serve::http::kTurnedAway + kOthers;
    if (files.rlim_cur < wanted) {
        files.rlim_cur = std::min(wanted, files.rlim_max);
        setrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NOFILE, &files);
    }
    if (files.rlim_cur < wanted) {
        const rlim_t own = kOthers + serve::http::kTurnedAway;
        limits.connections = files.rlim_cur > own ? files.rlim_cur - own : 1;
        say("at most " + std::to_string(limits.connections) +
            " connections: the process may open only " + std::to_string(files.rlim_cur) +
            " files (ulimit -n)");
    }
}

void serve_models(ServeChoice choice) {
    limit_connections(choice.http);
    std::optional<serve::http::Keys> keys;
    if (!choice.keys.empty()) {
        keys = serve::http::Keys::load(choice.keys);
        if (!keys->warning().empty()) {
            say(keys->warning());
        }
    }
    serve::Store store = open_store(choice.store);
    auto models = open_models(choice);
    serve::Engine engine(std::move(models), std::move(store), choice.limits);
    serve::http::Metrics metrics;
    serve::Routes routes(engine, std::move(keys), metrics);
    serve::http::Log log;
    serve::http::Histogram &seconds = metrics.histogram(
        "stasis_request_seconds", "From a request's first byte to its reply's last",
        {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100});
    serve::http::Server server(
        choice.listen, choice.http, [&](const auto &exchange) { routes.handle(exchange); },
        [&](const serve::http::Served &served) {
            seconds.observe(served.seconds);
            if (!choice.quiet) {
                log.request(served);
            }
        },
        [&](const serve::http::Request &head) { return routes.denial_of(head); });
    metrics.measured("stasis_reply_waiting_bytes",
                     "Bytes of replies, in memory, that clients have not taken", false,
                     [&] { return static_cast<double>(server.counts().reply_bytes); });
    if (pipe2(ending_pipe, O_CLOEXEC) != 0) {
        throw Failure(std::string("pipe: ") + std::strerror(errno));
    }
    std::signal(SIGTERM, ask_to_end);
    std::signal(SIGINT, ask_to_end);
    print("listening on http://" + server.address() + "\n");
    std::thread ending([&] { wait_for_end(server, engine, choice.shutdown_seconds); });
    server.run();
    ending.join();
    engine.finish();
}

} // namespace

void add_serve(CLI::App &app, int &exit_code) {
    CLI::App *serve = app.add_subcommand(
        "serve", "Serve models over HTTP, with the APIs of OpenAI and Anthropic");
    auto choice = std::make_shared<ServeChoice>();
    serve->add_option("MODEL", choice->models, "directories or GGUF files")->required();
    add_path(*serve, "--store", choice->store,
             "URI of a store in which sessions are kept: dir:PATH, sqlite:PATH");
    serve->add_option("--listen", choice->listen, "HOST:PORT (default: 127.0.0.1:8080)");
    add_path(*serve, "--api-key-file", choice->keys, "file of keys, one a line; requests need one");
    add_count(*serve, "--kv-budget", choice->model.kv_budget,
              "bytes of keys and values (default: all)");
    add_number<uint32_t>(*serve, "--sessions", choice->limits.sessions_max,
                         "sessions that draw a token in a pass (default: 64)",
                         {1, 1024, "a whole number from 1 to 1024"});
    add_count(*serve, "--running", choice->limits.running_max,
              "replies that run or wait; more get 429 (default: 256)");
    add_count(*serve, "--tokens-max", choice->limits.tokens_max,
              "tokens of a reply (default: the model's context)");
    add_count(*serve, "--timeout-ms", choice->limits.timeout_ms,
              "milliseconds of a reply from its request on (default: no limit)");
    add_count(*serve, "--ping-ms", choice->limits.ping_ms,
              "milliseconds of silence in a stream before a ping; 0: none (default: 15000)");
    add_count(*serve, "--body-max", choice->http.body_bytes,
              "bytes of a request's body (default: 67108864)");
    add_count(*serve, "--bodies-max", choice->http.bodies_bytes,
              "bytes of the bodies of all requests together (default: 1073741824)");
    add_count(*serve, "--shutdown-seconds", choice->shutdown_seconds,
              "for running replies after SIGTERM (default: 30)");
    serve->add_flag("--quiet", choice->quiet, "no line on stderr for each request");
    add_compute_options(*serve, choice->model);
    add_template_option(*serve, choice->model);
    serve->callback([choice, &exit_code] {
        serve_models(*choice);
        exit_code = 0;
    });
}

} // namespace command
