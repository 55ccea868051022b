// Sessions to files and streams and back: the one file that knows both the runtime and the format's
// reader and writer; see stasis_snapshot.h.
#include <algorithm>

#include "abi/handles.h"
#include "abi/message.h"
#include "abi/run.h"
#include "abi/saving.h"
#include "abi/stream.h"
#include "abi/trace.h"
#include "format/dead.h"
#include "format/fingerprint.h"
#include "format/reader.h"
#include "format/writer.h"
#include "runtime/compute/profile.h"
#include "runtime/session/session.h"
#include "runtime/snapshot/check.h"
#include "runtime/snapshot/export.h"
#include "runtime/snapshot/restore.h"
#include "runtime/snapshot/verify.h"

namespace stasis::abi {

namespace {

format::Parallel parallel_of(Threads &threads) {
    return {&threads,
            [](void *context, size_t count, void (*work)(void *data, size_t i), void *data) {
                static_cast<Threads *>(context)->run(count, 1, [&](size_t begin, size_t end) {
                    for (size_t i = begin; i < end; ++i) {
                        work(data, i);
                    }
                });
            }};
}

// Where a computed page first differs from what its fingerprints say.
std::optional<PagePlace> locate_by_fingerprints(const format::Snapshot &snapshot, size_t group,
                                                uint64_t index, const uint16_t *computed) {
    const State &state = snapshot.state();
    const format::PageRecord &page = snapshot.page(group, index);
    if (page.fingerprints.empty()) {
        return std::nullopt;
    }
    const std::vector<uint32_t> prints =
        format::page_fingerprints(state, group, page.valid, computed, state.page_positions);
    const auto first_from = [&](size_t begin, size_t end) {
        size_t at = begin;
        while (at < end && prints[at] == page.fingerprints[at]) {
            ++at;
        }
        return at - begin;
    };
    const size_t layers = state.groups[group].layers.size();
    const size_t slot = first_from(0, page.valid);
    const size_t layer = first_from(page.valid, page.valid + layers);
    if (slot == page.valid || layer == layers) {
        return std::nullopt; // the digest says more than they do
    }
    return PagePlace{slot, static_cast<uint32_t>(layer)};
}

// Lives no longer than the snapshot.
StoredPages pages_of(const format::Snapshot &snapshot) {
    return {[&](size_t group, uint64_t index) { return snapshot.stored(group, index); },
            [&](std::span<const PageInto> pages) { snapshot.read(pages); },
            [&](size_t group, uint64_t index, const uint16_t *computed) {
                return locate_by_fingerprints(snapshot, group, index, computed);
            },
            snapshot.keep() != format::Keep::full ? nullptr
                                                  : std::function([&](size_t index, float *into) {
                                                        snapshot.read_state(index, into);
                                                    })};
}

bool has_compressed(const format::Snapshot &snapshot) {
    const std::vector<format::Section> sections = snapshot.sections();
    return std::any_of(sections.begin(), sections.end(), [](const format::Section &section) {
        return section.frame.codec == format::Codec::zstd;
    });
}

void compact(const char *path, const stasis_save_options &given, const Watch &watch) {
    require_flags(given.flags, 0);
    Threads threads(0);
    read_codec(given.codec, format::Codec::raw); // refused before anything is opened
    const format::Codec standard =
        has_compressed(*format::Snapshot::open(path, system_files(), watch)) ? format::Codec::zstd
                                                                             : format::Codec::raw;
    format::SaveOptions options;
    options.codec = read_codec(given.codec, standard);
    options.watch = watch;
    options.parallel = parallel_of(threads);
    format::compact(path, options);
}

SaveChoice read_choice(const stasis_save_options &given) {
    require_flags(given.flags,
                  STASIS_SAVE_REPLACE | STASIS_SAVE_FULL_LOGITS | STASIS_SAVE_IF_MATCH);
    const SaveChoice choice{given.codec, given.keep, (given.flags & STASIS_SAVE_FULL_LOGITS) != 0,
                            (given.flags & STASIS_SAVE_REPLACE) != 0,
                            (given.flags & STASIS_SAVE_IF_MATCH) != 0};
    if (choice.replace && choice.if_match) {
        fail(Status::invalid_argument,
             "options.flags: STASIS_SAVE_REPLACE contradicts STASIS_SAVE_IF_MATCH");
    }
    return choice;
}

// What STASIS_VERIFY_STRICT asks for before anything is computed; how many sections it found right.
uint64_t check_strictly(const format::Snapshot &snapshot, const stasis_verify_options &given,
                        const Watch &watch) {
    require_flags(given.flags, STASIS_VERIFY_STRICT);
    require_zero(given.reserved, "options");
    return given.flags == 0 ? 0 : format::check_all_sections(snapshot, watch);
}

VerifyReport verify_file(const format::Snapshot &snapshot, const std::shared_ptr<Model> &model,
                         const stasis_verify_options &given, const Watch &watch) {
    const StoredPages pages = pages_of(snapshot);
    if (given.audit_percent == 0) {
        return verify(model, snapshot.state(), pages, {given.chunk, watch});
    }
    return audit(model, snapshot.state(), pages,
                 {{given.chunk, watch}, given.audit_percent, given.audit_seed});
}

void write_report(const VerifyReport &from, uint64_t sections, bool older,
                  stasis_verify_report *report) {
    static_assert(STASIS_NOWHERE == Divergence::kNowhere);
    const Divergence first = from.first.value_or(Divergence());
    stasis_verify_report to{};
    to.verified = from.first ? 0 : 1;
    to.positions = from.positions;
    to.position = first.position;
    to.layer = first.layer;
    to.element = first.element;
    write_message(first.message, to.message, sizeof to.message);
    to.head = first.head;
    to.part = first.part;
    to.drawn = from.drawn;
    to.drawn_otherwise = from.drawn_otherwise;
    to.audit_pages = from.pages_reachable;
    to.audit_drawn = from.pages_drawn;
    to.unreachable_begin = from.unreachable_begin;
    to.unreachable_end = from.unreachable_end;
    to.sections = sections;
    to.older = older ? 1 : 0;
    write_struct(to, report, "report");
}

} // namespace

format::Parallel parallel_on(const Model &model) {
    return parallel_of(*model.threads);
}

format::Codec read_codec(uint32_t given, format::Codec standard) {
    switch (given) {
    case STASIS_CODEC_DEFAULT:
        return standard;
    case STASIS_CODEC_RAW:
        return format::Codec::raw;
    case STASIS_CODEC_ZSTD:
        return format::Codec::zstd;
    default:
        fail(Status::unsupported, "options.codec is %u, expected STASIS_CODEC_...", given);
    }
}

format::Keep read_keep(uint32_t given) {
    if (given != STASIS_KEEP_FULL && given != STASIS_KEEP_NONE) {
        fail(Status::unsupported, "options.keep is %u, expected STASIS_KEEP_...", given);
    }
    return given == STASIS_KEEP_NONE ? format::Keep::none : format::Keep::full;
}

void save_with(Session &session, const SaveChoice &choice, const Watch &watch,
               const std::function<void(State &&state, format::SaveOptions &options)> &write) {
    format::SaveOptions options;
    options.replace = choice.replace;
    options.if_match = choice.if_match;
    options.codec = read_codec(choice.codec, format::Codec::raw);
    options.keep = read_keep(choice.keep);
    options.watch = watch;
    options.parallel = parallel_on(*session.model());
    State state = export_state(session, watch);
    if (options.keep == format::Keep::none) {
        check_computable(state.profile);
    }
    if (choice.full_logits && session.position() != 0) {
        options.logits_row = session.logits();
    }
    const Digest digest = state.digest;
    write(std::move(state), options);
    session.tell(TraceKind::save, 0, session.position(), digest);
}

namespace {

// `open` gives the snapshot, once the options have been found good.
std::unique_ptr<stasis_session> load(const std::shared_ptr<Model> &model,
                                     const stasis_load_options &given, const Watch &watch,
                                     const Open &open) {
    require_flags(given.flags, STASIS_LOAD_NO_RECOMPUTE | STASIS_LOAD_TRUSTED |
                                   STASIS_LOAD_ANY_PROFILE | STASIS_LOAD_ACCEPT_OLDER |
                                   STASIS_LOAD_SKIP_KNOWN);
    TimelineOptions session = read_session_options(given.session, "options.session");
    const Opened opened = open(watch);
    const format::Snapshot &snapshot = *opened.snapshot;
    if ((given.flags & STASIS_LOAD_ACCEPT_OLDER) == 0) {
        snapshot.require_newest();
    }
    check_identity(snapshot.state().model, *model); // before the bulk is read
    if (given.session == nullptr) {
        session.capacity = std::min<uint64_t>(snapshot.state().capacity, model->config.context);
        session.window_retain = snapshot.state().window_retain;
        session.tracking = static_cast<Tracking>(snapshot.state().tracking);
    }
    session.any_profile = (given.flags & STASIS_LOAD_ANY_PROFILE) != 0;
    session.trusted = (given.flags & STASIS_LOAD_TRUSTED) != 0;
    session.skip_known = (given.flags & STASIS_LOAD_SKIP_KNOWN) != 0;
    const StoredPages pages = pages_of(snapshot);
    const auto made = [&](std::unique_ptr<Session> loaded) {
        auto handle = std::make_unique<stasis_session>(std::move(loaded), snapshot.contents());
        handle->older = snapshot.older();
        return handle;
    };
    const bool may_compute = (given.flags & STASIS_LOAD_NO_RECOMPUTE) == 0;
    if (snapshot.keep() == format::Keep::full) {
        try {
            return made(restore_session(model, snapshot.state(), &session, pages, watch));
        } catch (const Error &error) {
            // What a store has lost follows from the log.
            if (error.status() != Status::corrupt || !may_compute || opened.stored == nullptr ||
                !opened.stored->lost_payload()) {
                throw;
            }
        }
    }
    if (!may_compute) {
        fail(Status::unsupported,
             "the snapshot keeps no keys and values: they would have to be recomputed, which "
             "STASIS_LOAD_NO_RECOMPUTE forbids");
    }
    return made(recompute_session(model, snapshot.state(), &session, pages, watch));
}

} // namespace

// The same with the trace that the options ask for.
std::unique_ptr<stasis_session> load_traced(const Caller &caller,
                                            const std::shared_ptr<Model> &model,
                                            const stasis_load_options &given, const Watch &watch,
                                            const Open &open) {
    if (given.trace != nullptr) {
        read_trace(given.trace, "options.trace"); // refused before anything is read
    }
    std::unique_ptr<stasis_session> loaded = load(model, given, watch, open);
    if (given.trace != nullptr) {
        const SessionUse use(*loaded, caller, Use::changes);
        const Digest digest = loaded->session->digest(); // as the file says
        set_trace(*loaded, given.trace, "options.trace", PageOrigin::elsewhere);
        loaded->session->tell(TraceKind::load, 0, loaded->session->position(), digest);
    }
    return loaded;
}

} // namespace stasis::abi

using namespace stasis::abi;
using stasis::format::SaveOptions;
using stasis::format::Snapshot;

void stasis_save_options_init(stasis_save_options *options, size_t size) {
    init_struct(options, size);
}

void stasis_load_options_init(stasis_load_options *options, size_t size) {
    init_struct(options, size);
}

void stasis_verify_options_init(stasis_verify_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_session_save(stasis_session *session, const char *path,
                                  const stasis_save_options *options, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        require_path(path, "path");
        const SessionUse use(*session, caller, Use::reads);
        const stasis_save_options given = read_struct(options, "options");
        CallWatch watch(caller, given);
        save_with(*session->session, read_choice(given), watch.watch(),
                  [&](stasis::State &&state, SaveOptions &chosen) {
                      chosen.known = session->saved;
                      session->saved = stasis::format::save(std::move(state), path, chosen);
                      session->older = false;
                  });
    });
}

stasis_status stasis_session_write(stasis_session *session, const stasis_sink *sink,
                                   const stasis_save_options *options, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        HostSink host(caller, sink);
        const SessionUse use(*session, caller, Use::reads);
        const stasis_save_options given = read_struct(options, "options");
        CallWatch watch(caller, given);
        save_with(*session->session, read_choice(given), watch.watch(),
                  [&](const stasis::State &state, const SaveOptions &chosen) {
                      stasis::format::write_stream(state, host.sink(), chosen);
                  });
    });
}

stasis_status stasis_session_load(stasis_model *model, const char *path,
                                  const stasis_load_options *options, stasis_session **session,
                                  stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(model, "model");
        require_path(path, "path");
        require(session, "session");
        const stasis_load_options given = read_struct(options, "options");
        CallWatch watch(caller, given);
        *session =
            load_traced(caller, model->model, given, watch.watch(),
                        [&](const stasis::Watch &open_watch) {
                            return Opened{Snapshot::open(path, stasis::system_files(), open_watch)};
                        })
                .release();
    });
}

stasis_status stasis_session_read(stasis_model *model, const stasis_source *source,
                                  const stasis_load_options *options, stasis_session **session,
                                  stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(model, "model");
        require(session, "session");
        HostSource host(caller, source);
        const stasis_load_options given = read_struct(options, "options");
        CallWatch watch(caller, given);
        *session = load_traced(caller, model->model, given, watch.watch(),
                               [&](const stasis::Watch &open_watch) {
                                   return Opened{Snapshot::open_source(host.source(), open_watch)};
                               })
                       .release();
    });
}

stasis_status stasis_snapshot_compact(const char *path, const stasis_save_options *options,
                                      stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require_path(path, "path");
        const stasis_save_options given = read_struct(options, "options");
        CallWatch watch(caller, given);
        compact(path, given, watch.watch());
    });
}

stasis_status stasis_snapshot_verify(const stasis_snapshot *snapshot, stasis_model *model,
                                     const stasis_verify_options *options,
                                     stasis_verify_report *report, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(snapshot, "snapshot");
        require(model, "model");
        require_struct(report, "report");
        const Busy busy(snapshot->busy, "snapshot");
        const stasis_verify_options given = read_struct(options, "options");
        CallWatch watch(caller, given);
        const Snapshot &own = *snapshot->snapshot;
        const uint64_t sections = check_strictly(own, given, watch.watch());
        const stasis::VerifyReport found = verify_file(own, model->model, given, watch.watch());
        write_report(found, sections, own.older(), report);
        if (found.first) {
            fail(stasis::Status::diverged, "element %u: %s", found.first->element,
                 found.first->message.c_str());
        }
    });
}
