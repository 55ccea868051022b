// Starting the service and asking it; see fake_s3.h.
#include "fake_s3.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "tests/places.h"

namespace stasis_s3 {

namespace {

const char *const kAccess = "AKIATEST", *const kSecret = "c2VjcmV0", *const kToken = "to/ken==";

// The running service. It ends when its input does: with this process, however this ends.
class Running {
  public:
    Running() {
        int input[2], output[2];
        if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) {
            throw std::runtime_error("no pipe");
        }
        const std::string script = std::string(places::source) + "/tests/modules/fake_s3.py";
        child_ = fork();
        if (child_ == 0) {
            dup2(input[0], 0);
            dup2(output[1], 1);
            execlp("python3", "python3", script.c_str(), kAccess, kSecret, kToken, nullptr);
            _exit(127);
        }
        close(input[0]);
        close(output[1]);
        input_ = input[1];
        std::string line; // read to its end: with its output closed the service would fail
        for (char c = 0; ::read(output[0], &c, 1) == 1 && c != '\n';) {
            line += c;
        }
        close(output[0]);
        port_ = std::atoi(line.c_str());
        if (port_ == 0) {
            throw std::runtime_error("the fake service did not start");
        }
    }
    ~Running() {
        close(input_);
        if (owner_ == getpid()) {
            waitpid(child_, nullptr, 0);
        }
    }
    std::string origin() const { return "http://127.0.0.1:" + std::to_string(port_); }

  private:
    const pid_t owner_ = getpid();
    pid_t child_ = -1;
    int input_ = -1, port_ = 0;
};

const Running &running() {
    static const Running service;
    return service;
}

std::string control(const std::string &path, const std::string &body) {
    Exchange exchange;
    exchange.method = "PUT";
    exchange.url = running().origin() + path;
    exchange.body = {reinterpret_cast<const uint8_t *>(body.data()), body.size()};
    Http http;
    http.run(std::span(&exchange, 1), {[] { return STASIS_OK; }, [](const char *) {}});
    if (exchange.status != 200) {
        throw std::runtime_error("the fake service: " + exchange.problem);
    }
    return exchange.text;
}

thread_local const stasis::Watch *watched = nullptr;

class Backend : public stasis::format::Backend {
    using Watch = stasis::Watch;
    using Bytes = stasis::format::Bytes;

  public:
    explicit Backend(const Settings &settings) : objects_(settings, fake_host()) {
        run([&] { objects_.open(false); });
    }

    std::optional<Bytes> get(const std::string &key, const Watch &watch) override {
        return call(key, watch, [&]() -> std::optional<Bytes> {
            const auto size = objects_.size(key);
            Bytes bytes(size.value_or(0));
            const bool whole = size && (bytes.empty() || objects_.read(key, 0, bytes));
            return whole ? std::optional(std::move(bytes)) : std::nullopt;
        });
    }
    bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
              const Watch &watch) override {
        return call(key, watch, [&] { return objects_.read(key, offset, into); });
    }
    void put(const std::string &key, std::span<const uint8_t> bytes, const Watch &watch) override {
        call(key, watch, [&] { objects_.put(key, bytes); });
    }
    void replace(const std::string &key, std::span<const uint8_t> bytes,
                 const Watch &watch) override {
        call(key, watch, [&] { objects_.replace(key, bytes); });
    }
    std::optional<stasis::format::Marked> get_marked(const std::string &key,
                                                     const Watch &watch) override {
        return call(key, watch, [&]() -> std::optional<stasis::format::Marked> {
            const auto root = objects_.get_root(key);
            if (!root) {
                return std::nullopt;
            }
            return stasis::format::Marked{{root->bytes.begin(), root->bytes.end()}, root->mark};
        });
    }
    std::optional<std::string> swap(const std::string &key, const std::optional<std::string> &mark,
                                    std::span<const uint8_t> bytes, const Watch &watch) override {
        return call(key, watch, [&] { return objects_.swap(key, mark, bytes); });
    }
    void list(const std::string &prefix,
              const std::function<bool(const stasis::format::ListedObject &)> &visit,
              const Watch &watch) override {
        stasis::format::check_prefix(prefix);
        call("x", watch, [&] {
            objects_.list(prefix, [&](const std::string &key, uint64_t bytes, uint64_t age) {
                return visit({key, bytes, age});
            });
        });
    }
    void remove(const std::string &key, const Watch &watch) override {
        call(key, watch, [&] { objects_.remove(key); });
    }
    bool remove_marked(const std::string &key, const std::string &mark,
                       const Watch &watch) override {
        return call(key, watch, [&] { return objects_.remove_root(key, mark); });
    }
    std::unique_ptr<stasis::format::BackendLock> lock_to_write(const Watch &) override {
        return nullptr;
    }
    std::unique_ptr<stasis::format::BackendLock> lock_to_collect(const Watch &) override {
        return nullptr;
    }

  private:
    template <typename Body> static auto run(const Body &body) -> decltype(body()) {
        try {
            return body();
        } catch (const Failure &failure) {
            throw stasis::Error(static_cast<stasis::Status>(failure.status()), failure.what());
        }
    }
    template <typename Body>
    auto call(const std::string &key, const Watch &watch, const Body &body) -> decltype(body()) {
        stasis::format::check_key(key);
        struct Restore {
            const Watch *before = watched;
            ~Restore() { watched = before; }
        } const restore;
        watched = &watch;
        return run(body);
    }

    Objects objects_;
};

} // namespace

void make_trouble(const std::string &json) {
    control("/_trouble", json);
}

int calls_since(const std::string &what) {
    const std::string counts = control("/_counts", ""), name = "\"" + what + "\": ";
    const size_t at = counts.find(name);
    return at == std::string::npos ? 0 : std::atoi(counts.c_str() + at + name.size());
}

Settings fake_settings(const std::string &prefix) {
    return read_settings("s3://test/" + prefix + "?endpoint=" + running().origin(),
                         [](const char *name) -> const char * {
                             const std::string asked = name;
                             return asked == "AWS_ACCESS_KEY_ID"       ? kAccess
                                    : asked == "AWS_SECRET_ACCESS_KEY" ? kSecret
                                    : asked == "AWS_SESSION_TOKEN"     ? kToken
                                                                       : nullptr;
                         });
}

Host fake_host() {
    return {[]() -> stasis_status {
                if (watched == nullptr || !watched->ends()) {
                    return STASIS_OK;
                }
                return watched->deadline.passed() ? STASIS_TIMEOUT : STASIS_CANCELLED;
            },
            [](const char *) {}};
}

std::unique_ptr<stasis::format::Backend> open_fake(const Settings &settings) {
    return std::make_unique<Backend>(settings);
}

} // namespace stasis_s3
