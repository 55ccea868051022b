// Reads JSON files; see json_file.h. The parser is nlohmann's, but not the values: their destructor
// allocates, and if that fails the process ends.
#include "runtime/model/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "format/state/error.h"

namespace stasis {

namespace {

constexpr size_t kDepthMax = 16;

struct OpenFile {
    int descriptor;
    ~OpenFile() { close(descriptor); }
};

// Takes the calls of nlohmann's parser, whose names are fixed, and checks what the parser does not:
// depth, and keys given twice.
class Builder {
  public:
    explicit Builder(const std::string &file) : file_(file) {}

    bool null() { return add(Json{}); }
    bool boolean(bool value) { return add(Json{value}); }
    bool number_integer(int64_t value) { return add(Json{value}); }
    bool number_unsigned(uint64_t value) { return add(Json{value}); }
    bool number_float(double value, const std::string &) { return add(Json{value}); }
    bool string(std::string &value) { return add(Json{std::move(value)}); }
    bool binary(nlohmann::json::binary_t &) { return false; } // not in text
    bool start_object(size_t) { return open(Json{Json::Object()}); }
    bool start_array(size_t) { return open(Json{Json::Array()}); }
    bool end_array() { return close(); }
    bool key(std::string &name) {
        check_depth();
        std::get<Json::Object>(open_.back().value).push_back({std::move(name), Json{}});
        return true;
    }
    bool end_object() {
        // Sorted members make a key given twice visible, and lookups fast.
        Json::Object &members = std::get<Json::Object>(open_.back().value);
        const auto before = [](const Json::Member &a, const Json::Member &b) {
            return a.key < b.key;
        };
        if (!std::is_sorted(members.begin(), members.end(), before)) {
            std::sort(members.begin(), members.end(), before);
        }
        const auto twice = std::adjacent_find(
            members.begin(), members.end(),
            [](const Json::Member &a, const Json::Member &b) { return a.key == b.key; });
        if (twice != members.end()) {
            fail(Status::corrupt, "%s gives the key \"%s\" twice in one object", file_.c_str(),
                 twice->key.c_str());
        }
        return close();
    }
    [[noreturn]] bool parse_error(size_t, const std::string &, const std::exception &error) {
        fail(Status::corrupt, "%s is not valid JSON: %s", file_.c_str(), error.what());
    }

    Json take() { return std::move(root_); }

  private:
    void check_depth() const {
        if (open_.size() > kDepthMax) {
            fail(Status::corrupt, "%s is nested deeper than %zu", file_.c_str(), kDepthMax);
        }
    }
    bool open(Json value) {
        check_depth();
        open_.push_back(std::move(value));
        return true;
    }
    bool close() {
        Json value = std::move(open_.back());
        open_.pop_back();
        return place(std::move(value));
    }
    bool add(Json value) {
        check_depth();
        return place(std::move(value));
    }
    bool place(Json value) {
        if (open_.empty()) {
            root_ = std::move(value);
        } else if (auto *array = std::get_if<Json::Array>(&open_.back().value)) {
            array->push_back(std::move(value));
        } else {
            std::get<Json::Object>(open_.back().value).back().value = std::move(value);
        }
        return true;
    }

    const std::string &file_;
    Json root_;
    std::vector<Json> open_; // arrays and objects, each inside the one before it
};

} // namespace

bool file_exists(const std::string &path) {
    struct stat information {};
    if (stat(path.c_str(), &information) == 0) {
        return true;
    }
    if (errno != ENOENT && errno != ENOTDIR) {
        fail(Status::io, "cannot look for %s: %s", path.c_str(), std::strerror(errno));
    }
    return false;
}

std::string read_text(const std::string &path, size_t size_limit_bytes) {
    // O_NONBLOCK, so that a named pipe in the directory cannot block opening a model.
    const OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.descriptor < 0) {
        fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io,
             "cannot open %s: %s", path.c_str(), std::strerror(errno));
    }
    struct stat information {};
    if (fstat(file.descriptor, &information) != 0 || !S_ISREG(information.st_mode)) {
        fail(Status::io, "%s is not a regular file", path.c_str());
    }
    // The size limit bounds the memory before anything is read.
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

Json parse_json(std::string_view text, const std::string &file) {
    Builder builder(file);
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    Json value = builder.take();
    if (value.object() == nullptr) {
        fail(Status::corrupt, "%s: expected a JSON object, found %s", file.c_str(),
             value.type_name());
    }
    return value;
}

} // namespace stasis
