// A plain model of a session's page tables, built from nothing but its trace.
#pragma once

#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/abi/fixture.h"

namespace abi_test {

struct TraceModel {
    using Place = std::pair<uint32_t, uint64_t>; // group, first position
    struct Page {
        uint64_t bytes;
        Digest digest; // zero: not full
    };

    std::map<Place, Page> pages = {};
    std::map<Place, Digest> digests = {}; // of all full pages ever reported
    uint64_t position = 0;
    std::map<uint32_t, uint64_t> counts = {}; // by kind
    std::string wrong = {};                   // the first event that cannot be
    std::vector<stasis_trace_event> events = {};
    std::thread::id thread = {}; // that the last event came from
    int released = 0;            // times that the trace ended

    static Digest digest_in(const stasis_trace_event &event) {
        Digest digest;
        std::memcpy(digest.data(), event.digest.bytes, digest.size());
        return digest;
    }

    void refuse(const stasis_trace_event &event, const char *why) {
        if (wrong.empty()) {
            wrong = "event " + std::to_string(counts.size()) + ", kind " +
                    std::to_string(event.kind) + ", group " + std::to_string(event.group) +
                    ", positions from " + std::to_string(event.begin) + ": " + why;
        }
    }

    void take(const stasis_trace_event &event) {
        const Place place{event.group, event.begin};
        const auto held = pages.find(place);
        const bool needs = event.kind == STASIS_TRACE_COPIED || event.kind == STASIS_TRACE_FILLED ||
                           event.kind == STASIS_TRACE_RELEASED;
        if (needs != (held != pages.end())) {
            refuse(event, needs ? "there is no such page" : "there is a page already");
        }
        const Digest digest = digest_in(event);
        if (digest != Digest{}) {
            const auto known = digests.find(place);
            digests[place] = digest;
            if (event.kind == STASIS_TRACE_RELEASED && known == digests.end()) {
                refuse(event, "a digest that it never got");
            }
        }
        if (event.kind == STASIS_TRACE_RELEASED) {
            if (held != pages.end() && held->second.digest != digest) {
                refuse(event, "released with another digest");
            }
            pages.erase(place);
        } else {
            pages[place] = {event.bytes, digest};
        }
    }

    // Pages that are no longer full.
    void cut(uint64_t at) {
        for (auto &[place, page] : pages) {
            if (at < place.second + 64) {
                page.digest = {};
            }
        }
    }

    void apply(const stasis_trace_event &event) {
        ++counts[event.kind];
        switch (event.kind) {
        case STASIS_TRACE_READ:
        case STASIS_TRACE_EVICT:
            break;
        case STASIS_TRACE_UNDONE:
            cut(event.begin);
            break;
        case STASIS_TRACE_APPEND:
            if (event.begin != position) {
                refuse(event, "appended elsewhere");
            }
            position = event.end;
            break;
        case STASIS_TRACE_REWIND:
            if (event.end != position) {
                refuse(event, "rewound from elsewhere");
            }
            position = event.begin;
            cut(event.begin);
            break;
        case STASIS_TRACE_FORK:
        case STASIS_TRACE_SAVE:
            if (event.begin != 0 || event.end != position) {
                refuse(event, "not the whole session");
            }
            break;
        case STASIS_TRACE_LOAD:
            position = event.end;
            break;
        default:
            take(event);
        }
    }

    static void hear(void *user, const stasis_trace_event *event) {
        auto &self = *static_cast<TraceModel *>(user);
        self.thread = std::this_thread::get_id();
        self.events.push_back(*event);
        self.apply(*event);
    }

    stasis_trace_options options(uint32_t flags = 0) {
        auto result = sized<stasis_trace_options>();
        result.flags = flags;
        result.callback = hear;
        result.user = this;
        result.release = [](void *user) { ++static_cast<TraceModel *>(user)->released; };
        return result;
    }

    void follow(const stasis_session *session, uint32_t flags = 0) {
        const stasis_trace_options given = options(flags);
        position = abi_test::position(session);
        stasis_error error;
        const stasis_status status =
            stasis_session_set_trace(const_cast<stasis_session *>(session), &given, &error);
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    }

    // Returns a difference between the model and the session's own description; empty if there is
    // none.
    std::string differs(const stasis_session_info &info) const {
        uint64_t bytes = 0;
        bool full = true;
        for (const auto &[place, page] : pages) {
            bytes += page.bytes;
            full &= (page.digest != Digest{}) == (place.second + 64 <= info.position);
        }
        return !wrong.empty()                                       ? wrong
               : position != info.position                          ? "another position"
               : pages.size() != info.pages_own + info.pages_shared ? "another number of pages"
               : bytes != info.kv_bytes                             ? "other bytes"
               : !full                                              ? "digests missing, or too many"
                                                                    : "";
    }

    std::string differs(const stasis_session *session) const {
        auto info = sized<stasis_session_info>();
        REQUIRE(stasis_session_get_info(session, &info, nullptr) == STASIS_OK);
        return differs(info);
    }
};

} // namespace abi_test
