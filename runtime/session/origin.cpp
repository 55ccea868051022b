// What a model's files say, by their kind; see origin.h.
#include "runtime/session/origin.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "runtime/model/json_file.h"

namespace stasis {

Origin::Origin(const std::string &path) : folder(path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io,
             "cannot open %s: %s", path.c_str(), std::strerror(errno));
    }
    if (S_ISREG(status.st_mode)) {
        gguf = open_gguf(path);
    }
}

Origin::Origin(int descriptor) : folder("") {
    gguf = open_gguf(std::make_shared<ModelFile>(descriptor),
                     "descriptor " + std::to_string(descriptor));
}

Origin::Origin(const HostFiles &host, const std::string &name) : folder(host), of_host(true) {
    if (!name.empty()) {
        gguf = open_gguf(folder, name);
    }
}

std::unique_ptr<Tokenizer> Origin::tokenizer(const Config &config) const {
    if (!gguf) {
        return Tokenizer::open(folder, config.vocabulary, config.bos, config.end_tokens);
    }
    const std::string kind = gguf->text("tokenizer.ggml.model").value_or("none");
    if (kind == "none" || kind == "no_vocab") {
        return nullptr;
    }
    return Tokenizer::open_gguf(*gguf, config.vocabulary, config.bos, config.end_tokens);
}

std::optional<ChatTemplate> Origin::chat(const Tokenizer &tokenizer,
                                         std::optional<std::time_t> date) const {
    if (!gguf) {
        return ChatTemplate::recognise(folder, date);
    }
    const std::optional<std::string> text = gguf->text("tokenizer.chat_template");
    return text ? ChatTemplate::recognise_text(*text, tokenizer.bos_text(), tokenizer.eos_text(),
                                               date)
                : std::nullopt;
}

RecommendedSampling Origin::recommended(uint32_t vocabulary) const {
    if (gguf) {
        return recommended_sampling(*gguf, vocabulary);
    }
    const std::string text = read_generation_config(folder);
    return recommended_sampling(text.empty() ? Json() : parse_json(text, kGenerationConfig),
                                vocabulary);
}

const kernels::Table *choose_kernels(const std::string &name) {
    if (name.empty()) {
        return &kernels::best_table();
    }
    const kernels::Table *table = kernels::find_table(name.c_str());
    if (table == nullptr) {
        fail(Status::unsupported, "kernels \"%s\": not in this build or not on this machine",
             name.c_str());
    }
    return table;
}

// A rewind computes states again from a checkpoint, where a window may have released pages.
void check_rewinds(const Network &network) {
    if (network.state_size() != 0 &&
        (network.groups.empty() || network.groups.back().window != 0)) {
        fail(Status::unsupported, "recurrent layers without global attention, or beside windows");
    }
}

} // namespace stasis
