// What the library and a model say of themselves; see stasis_describe.h. Must not know what a
// model's files contain.
#include <algorithm>

#include "abi/handles.h"
#include "abi/options.h"
#include "runtime/session/model.h"

namespace stasis::abi {

namespace {

#define STASIS_SPELLED(number) #number
#define STASIS_SPELL(number) STASIS_SPELLED(number)
#define STASIS_DOTTED(major, minor, patch)                                                         \
    STASIS_SPELL(major) "." STASIS_SPELL(minor) "." STASIS_SPELL(patch)

#ifdef __clang__
#define STASIS_COMPILER                                                                            \
    "clang " STASIS_DOTTED(__clang_major__, __clang_minor__, __clang_patchlevel__)
#if __has_feature(address_sanitizer)
#define STASIS_SANITIZER ", address sanitizer"
#elif __has_feature(thread_sanitizer)
#define STASIS_SANITIZER ", thread sanitizer"
#endif
#else
#define STASIS_COMPILER "gcc " STASIS_DOTTED(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#endif
#ifndef STASIS_SANITIZER
#define STASIS_SANITIZER ""
#endif

#ifdef NDEBUG
#define STASIS_KIND "optimised"
#else
#define STASIS_KIND "debug"
#endif

// STASIS_BUILD_VERSION and STASIS_BUILD_PARTS come from CMakeLists.txt.
constexpr char kBuild[] = STASIS_BUILD_VERSION
    " (" STASIS_COMPILER ", " STASIS_KIND STASIS_SANITIZER STASIS_BUILD_PARTS ")";

// Returns the public number of a kind. Throws nothing.
uint32_t number_of(PieceKind kind) {
    switch (kind) {
    case PieceKind::unknown:
        return STASIS_TOKEN_UNKNOWN;
    case PieceKind::control:
        return STASIS_TOKEN_SPECIAL;
    case PieceKind::unused:
        return STASIS_TOKEN_UNUSED;
    case PieceKind::byte:
        return STASIS_TOKEN_BYTE;
    case PieceKind::normal:
    case PieceKind::user_defined:
        break;
    }
    return STASIS_TOKEN_NORMAL;
}

// Describes a token. Throws Error: unsupported, invalid_argument.
stasis_token_info describe_token(const Model &model, stasis_token token) {
    if (model.tokenizer == nullptr) {
        fail(Status::unsupported, "the model has no tokenizer");
    }
    if (token >= model.config.vocabulary) {
        fail(Status::invalid_argument, "token %u: the vocabulary has %u", token,
             model.config.vocabulary);
    }
    stasis_token_info info{};
    info.kind = number_of(model.tokenizer->kind(token));
    const std::vector<uint32_t> &ends = model.config.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
        info.flags |= STASIS_TOKEN_ENDS;
    }
    if (const std::optional<float> score = model.tokenizer->score(token)) {
        info.flags |= STASIS_TOKEN_SCORED;
        info.score = *score;
    }
    const std::string &piece = model.tokenizer->piece(token);
    info.piece = piece.data();
    info.length = piece.size();
    return info;
}

stasis_metadata metadata_of(const MetadataEntry &entry) {
    stasis_metadata to{};
    to.kind = entry.kind == MetadataEntry::Kind::text   ? STASIS_METADATA_TEXT
              : entry.kind == MetadataEntry::Kind::json ? STASIS_METADATA_JSON
                                                        : STASIS_METADATA_LEFT_OUT;
    to.key = entry.key.c_str();
    to.value = entry.value.data();
    to.length = entry.value.size();
    return to;
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

const char *stasis_build(void) {
    return kBuild;
}

stasis_status stasis_model_get_token(const stasis_model *model, stasis_token token,
                                     stasis_token_info *info, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require_struct(info, "info");
        write_struct(describe_token(*model->model, token), info, "info");
    });
}

stasis_status stasis_model_get_metadata(const stasis_model *model, const char *key,
                                        stasis_metadata *metadata, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(key, "key");
        require_struct(metadata, "metadata");
        const stasis::MetadataEntry *entry = model->model->metadata.find(key);
        if (entry == nullptr) {
            fail(stasis::Status::not_found, "the model's files have no metadata \"%.200s\"", key);
        }
        write_struct(metadata_of(*entry), metadata, "metadata");
    });
}

stasis_status stasis_model_get_metadata_at(const stasis_model *model, size_t index,
                                           stasis_metadata *metadata, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require_struct(metadata, "metadata");
        const std::vector<stasis::MetadataEntry> &all = model->model->metadata.all();
        if (index >= all.size()) {
            fail(stasis::Status::not_found, "metadata %zu: there are %zu", index, all.size());
        }
        write_struct(metadata_of(all[index]), metadata, "metadata");
    });
}
