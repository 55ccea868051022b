// See json_file.h. nlohmann's parser keeps the last of two equal keys and has no depth limit; its
// callback adds both checks while parsing.
#include "runtime/checkpoint/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "format/error.h"

namespace stasis {

namespace {

constexpr size_t kDepthMax = 16;

struct OpenFile {
    int descriptor;
    ~OpenFile() { close(descriptor); }
};

} // namespace

std::string read_text(const std::string &path, size_t size_limit_bytes) {
    // Non-blocking, so that a named pipe in the directory cannot make opening a model wait.
    const OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.descriptor < 0) {
        fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io,
             "cannot open %s: %s", path.c_str(), std::strerror(errno));
    }
    struct stat information {};
    if (fstat(file.descriptor, &information) != 0 || !S_ISREG(information.st_mode)) {
        fail(Status::io, "%s is not a regular file", path.c_str());
    }
    if (static_cast<uint64_t>(information.st_size) > size_limit_bytes) {
        fail(Status::corrupt, "%s has %lld bytes, more than the %zu that such a file may have",
             path.c_str(), static_cast<long long>(information.st_size), size_limit_bytes);
    }
    std::string text(static_cast<size_t>(information.st_size), '\0');
    size_t done = 0;
    while (done < text.size()) {
        const ssize_t count = read(file.descriptor, text.data() + done, text.size() - done);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            fail(Status::io, "cannot read %s beyond byte %zu of %zu: %s", path.c_str(), done,
                 text.size(), count < 0 ? std::strerror(errno) : "the file shrank");
        }
        done += static_cast<size_t>(count);
    }
    return text;
}

nlohmann::json parse_json(std::string_view text, const std::string &file) {
    using nlohmann::json;
    std::vector<std::set<std::string>> keys; // of the objects that are open
    const auto check = [&](int depth, json::parse_event_t event, const json &value) {
        if (static_cast<size_t>(depth) > kDepthMax) {
            fail(Status::corrupt, "%s is nested deeper than %zu", file.c_str(), kDepthMax);
        }
        if (event == json::parse_event_t::object_start) {
            keys.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            keys.pop_back();
        } else if (event == json::parse_event_t::key) {
            const std::string &key = value.get_ref<const std::string &>();
            if (!keys.back().insert(key).second) {
                fail(Status::corrupt, "%s gives the key \"%s\" twice in one object", file.c_str(),
                     key.c_str());
            }
        }
        return true;
    };
    json value;
    try {
        value = json::parse(text.begin(), text.end(), check);
    } catch (const json::exception &error) {
        fail(Status::corrupt, "%s is not valid JSON: %s", file.c_str(), error.what());
    }
    if (!value.is_object()) {
        fail(Status::corrupt, "%s: expected a JSON object, found %s", file.c_str(),
             value.type_name());
    }
    return value;
}

} // namespace stasis
