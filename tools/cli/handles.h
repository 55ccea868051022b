// Owning handles over the C API, and its statuses as exceptions. Uses abi/stasis.h only; prints
// nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "abi/stasis.h"

namespace command {

// The message for the user before the command ends with exit code 2.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <auto Release> struct Releaser {
    template <typename Object> void operator()(Object *object) const { Release(object); }
};
using Model = std::unique_ptr<stasis_model, Releaser<stasis_model_close>>;
using Session = std::unique_ptr<stasis_session, Releaser<stasis_session_free>>;
using Snapshot = std::unique_ptr<stasis_snapshot, Releaser<stasis_snapshot_close>>;
using Cancel = std::unique_ptr<stasis_cancel, Releaser<stasis_cancel_release>>;
using TextStream = std::unique_ptr<stasis_text_stream, Releaser<stasis_text_stream_free>>;

// Returns a versioned struct, zeroed, with its size set.
template <typename Struct> Struct sized() {
    Struct value{};
    value.struct_size = sizeof(Struct);
    return value;
}

// Throws Failure unless `status` is OK. `where` (a file, a step) is put before a message that lacks
// it.
inline void check(stasis_status status, const stasis_error &error, const std::string &where) {
    if (status != STASIS_OK) {
        const std::string message = error.message;
        const bool placed = message.find(where) != std::string::npos;
        throw Failure((placed ? "" : where + ": ") + message + " (" + stasis_status_name(status) +
                      ")");
    }
}

// Returns an output of unknown length: asks for the length, then for the elements. `call(buffer,
// capacity, &count, &error)` is the C function with its other arguments bound. Throws Failure.
template <typename List, typename Call> List fetch_list(Call call, const std::string &where) {
    using Element = typename List::value_type;
    List elements;
    stasis_error error{};
    size_t count = 0;
    stasis_status status = call(static_cast<Element *>(nullptr), size_t{0}, &count, &error);
    if (status == STASIS_BUFFER_TOO_SMALL) {
        elements.resize(count);
        status = call(elements.data(), elements.size(), &count, &error);
    }
    check(status, error, where);
    return elements;
}

template <typename Element, typename Call>
std::vector<Element> fetch(Call call, const std::string &where) {
    return fetch_list<std::vector<Element>>(call, where);
}

template <typename Call> std::string fetch_text(Call call, const std::string &where) {
    return fetch_list<std::string>(call, where);
}

// `flags`: STASIS_TOKENIZE_...
inline std::vector<stasis_token> tokenize(const stasis_model *model, const std::string &text,
                                          uint32_t flags) {
    return fetch<stasis_token>(
        [&](stasis_token *tokens, size_t capacity, size_t *count, stasis_error *error) {
            return stasis_model_tokenize(model, text.data(), text.size(), flags, tokens, capacity,
                                         count, error);
        },
        "tokenizing");
}

} // namespace command
