// See spool.h.
#include "tools/serve/engine/spool.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "tools/cli/terminal.h"

namespace serve {

namespace {

constexpr size_t kWritten = size_t{256} << 10; // bytes in one call of the system
constexpr size_t kPiece = size_t{256} << 10;   // of a reply that is in memory

[[noreturn]] void refuse_disk(const char *what) {
    throw api::Refused{
        503, "overloaded",
        std::string("no place for what is to be sent: ") + what + ": " + std::strerror(errno), ""};
}

int unnamed_file() {
    const char *given = std::getenv("TMPDIR");
    std::string path = given != nullptr && *given != '\0' ? given : "/var/tmp";
    path += "/stasis-serve-XXXXXX";
    const int file = mkostemp(path.data(), O_CLOEXEC);
    if (file < 0) {
        refuse_disk(path.c_str());
    }
    unlink(path.c_str());
    return file;
}

// What is sent, and its place among all that are.
struct Placed {
    explicit Placed(Engine &of) : engine(of) { engine.begin_sending(); }
    ~Placed() {
        spool = nullptr;
        engine.end_sending();
    }
    Placed(const Placed &) = delete;
    Placed &operator=(const Placed &) = delete;

    Engine &engine;
    std::shared_ptr<const Spool> spool;
};

// One reply's way to its client. Held by the reply, for which it gives the next piece, and by the
// worker that reads it.
struct Sending {
    Sending(std::shared_ptr<http::Exchange> to, std::shared_ptr<const Placed> what)
        : engine(what->engine), exchange(std::move(to)), spool(*what->spool),
          placed(std::move(what)) {}
    // On the server's thread, if the client has left: there nothing may wait for a file of
    // gigabytes to be given back to the disk.
    ~Sending() {
        try {
            engine.workers().post([kept = std::move(placed)] {});
        } catch (const std::exception &) { // no memory: then here
        }
    }
    Sending(const Sending &) = delete;
    Sending &operator=(const Sending &) = delete;

    Engine &engine;
    const std::shared_ptr<http::Exchange> exchange;
    const Spool &spool;
    std::shared_ptr<const Placed> placed;
    uint64_t at = 0; // of the worker that was asked for the next piece

    void next() {
        try {
            std::string piece = spool.read(at, kPiece);
            http::give_piece(*exchange, at, spool.size(), std::move(piece));
        } catch (const api::Refused &refused) {
            command::say(refused.message);
            exchange->cut();
        } catch (const std::exception &error) {
            command::say(error.what());
            exchange->cut();
        }
    }
};

} // namespace

Spool::Spool() : file_(unnamed_file()) {}

Spool::~Spool() {
    close(file_);
}

void Spool::write(std::string_view bytes) {
    waiting_.append(bytes);
    size_ += bytes.size();
    if (waiting_.size() >= kWritten) {
        finish();
    }
}

void Spool::finish() {
    std::string_view left = waiting_;
    while (!left.empty()) {
        const ssize_t written = ::write(file_, left.data(), left.size());
        if (written < 0 && errno != EINTR) {
            refuse_disk("the disk");
        }
        left.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
    }
    waiting_.clear();
}

std::string Spool::read(uint64_t at, size_t most) const {
    std::string bytes(std::min<uint64_t>(most, size_ - at), '\0');
    for (size_t have = 0; have < bytes.size();) {
        const ssize_t count =
            pread(file_, bytes.data() + have, bytes.size() - have, static_cast<off_t>(at + have));
        if (count == 0 || (count < 0 && errno != EINTR)) {
            throw api::Refused{500, "server_error",
                               std::string("what was to be sent cannot be read: ") +
                                   (count == 0 ? "it is shorter" : std::strerror(errno)),
                               ""};
        }
        have += count < 0 ? 0 : static_cast<size_t>(count);
    }
    return bytes;
}

command::Snapshot Spool::snapshot() const {
    stasis_snapshot *opened = nullptr;
    stasis_error error{};
    const std::string path = "/proc/self/fd/" + std::to_string(file_);
    require(stasis_snapshot_open(path.c_str(), &opened, &error), error);
    return command::Snapshot(opened);
}

void send_spooled(Engine &engine, const Call &call, const char *type,
                  const std::function<std::shared_ptr<const Spool>()> &make) {
    const auto placed = std::make_shared<Placed>(engine);
    placed->spool = make();
    const auto sending = std::make_shared<Sending>(call.exchange, placed);
    call.exchange->begin_asked(200, {{"content-type", type}}, sending->spool.size(), [sending] {
        sending->engine.workers().post([sending] { sending->next(); });
    });
}

} // namespace serve
