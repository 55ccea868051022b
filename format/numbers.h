// The numbers of a session that a snapshot stores apart from its log, pages and settings. They are
// listed once; the manifest's builder and parser, the checks, the comparison and the JSON walk this
// list.
#pragma once

#include <cstdint>
#include <tuple>

#include "format/state/state.h"
#include "manifest_generated.h"

namespace stasis::format {

template <class T> struct SessionNumber {
    const char *name;  // in the JSON of element 6, and where two snapshots are compared
    const char *title; // in messages
    T State::*member;
    T (manifest::Manifest::*get)() const;
    void (manifest::ManifestBuilder::*add)(T value);
    flatbuffers::voffset_t id;
    T most; // a larger one is refused
};

// The order is that of the JSON and of the comparison.
inline constexpr std::tuple kSessionNumbers = {
    SessionNumber<uint64_t>{"capacity", "capacity", &State::capacity, &manifest::Manifest::capacity,
                            &manifest::ManifestBuilder::add_capacity,
                            manifest::Manifest::VT_CAPACITY, UINT64_MAX},
    SessionNumber<uint64_t>{"window_retain", "window_retain", &State::window_retain,
                            &manifest::Manifest::window_retain,
                            &manifest::ManifestBuilder::add_window_retain,
                            manifest::Manifest::VT_WINDOW_RETAIN, UINT64_MAX},
    SessionNumber<uint32_t>{"tracking", "tracking of attention", &State::tracking,
                            &manifest::Manifest::tracking, &manifest::ManifestBuilder::add_tracking,
                            manifest::Manifest::VT_TRACKING, 2},
};

// Calls visit(row) for each row.
template <class Visit> void each_session_number(const Visit &visit) {
    std::apply([&](const auto &...row) { (visit(row), ...); }, kSessionNumbers);
}

} // namespace stasis::format
