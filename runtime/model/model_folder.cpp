// Finds the files of a model; see model_folder.h.
#include "runtime/model/model_folder.h"

#include "format/state/error.h"
#include "runtime/model/json_file.h"

namespace stasis {

bool ModelFolder::has(const std::string &name) const {
    return host_.size != nullptr ? host_.size(host_.user, name.c_str()).has_value()
                                 : file_exists(shown(name));
}

std::string ModelFolder::text(const std::string &name, size_t size_limit_bytes) const {
    if (host_.size == nullptr) {
        return read_text(shown(name), size_limit_bytes);
    }
    const ModelFile file(host_, name);
    if (file.size_bytes() > size_limit_bytes) { // before its memory is taken
        fail(Status::corrupt, "%s has %llu bytes, more than the %zu that such a file may have",
             name.c_str(), Number{file.size_bytes()}, size_limit_bytes);
    }
    std::string text(static_cast<size_t>(file.size_bytes()), '\0');
    file.read(text.data(), text.size(), 0);
    return text;
}

std::shared_ptr<ModelFile> ModelFolder::open(const std::string &name) const {
    return host_.size != nullptr ? std::make_shared<ModelFile>(host_, name)
                                 : std::make_shared<ModelFile>(shown(name));
}

std::string ModelFolder::shown(const std::string &name) const {
    return host_.size != nullptr ? name : directory_ + "/" + name;
}

} // namespace stasis
