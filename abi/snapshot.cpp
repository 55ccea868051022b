// Sessions to files and back: the one file that knows both the runtime and the format's reader and
// writer; see stasis.h.
#include <algorithm>
#include <optional>

#include "abi/handles.h"
#include "abi/run.h"
#include "format/fingerprint.h"
#include "format/reader.h"
#include "format/writer.h"
#include "runtime/session.h"
#include "runtime/verify.h"

namespace stasis::abi {

namespace {

void save(Session &session, const char *path, const stasis_save_options &given, Watch watch) {
    require_flags(given.flags, STASIS_SAVE_REPLACE | STASIS_SAVE_FULL_LOGITS);
    const State state = session.export_state();
    std::vector<float> row;
    if ((given.flags & STASIS_SAVE_FULL_LOGITS) != 0 && session.position() != 0) {
        row.resize(state.vocabulary);
        session.logits(row);
    }
    format::SaveOptions options;
    options.replace = (given.flags & STASIS_SAVE_REPLACE) != 0;
    options.logits_row = row;
    options.watch = watch;
    format::save(state, path, options);
}

std::unique_ptr<Session> load(const std::shared_ptr<Model> &model, const char *path,
                              const stasis_load_options &given, Watch watch) {
    require_zero(given.reserved, "options");
    const SessionOptions session = read_session_options(given.session, "options.session");
    const std::shared_ptr<const format::Snapshot> snapshot = format::Snapshot::open(path);
    check_identity(snapshot->state().model, model->identity); // before the bulk is read
    State state = snapshot->state();
    snapshot->read_pages(state, watch);
    return Session::restore(model, state, given.session != nullptr ? &session : nullptr);
}

// The first slot and layer of a page whose fingerprints are not those kept in its place.
std::optional<PagePlace> locate_by_fingerprint(const format::Snapshot &snapshot, size_t group,
                                               uint64_t index, const uint16_t *computed) {
    const State &state = snapshot.state();
    const uint32_t valid = state.pages[group][index].valid;
    const std::vector<uint32_t> &kept = snapshot.page(group, index).fingerprints;
    if (kept.empty()) {
        return std::nullopt; // released: only its digest is left
    }
    const std::vector<uint32_t> prints = format::page_fingerprints(state, group, valid, computed);
    const auto first = [&](size_t begin, size_t count) {
        const auto from = kept.begin() + static_cast<ptrdiff_t>(begin);
        const auto to = from + static_cast<ptrdiff_t>(count);
        return std::mismatch(from, to, prints.begin() + static_cast<ptrdiff_t>(begin)).first - from;
    };
    const auto slot = static_cast<uint64_t>(first(0, valid));
    const auto layer = static_cast<uint32_t>(first(valid, state.groups[group].layers.size()));
    if (slot == valid || layer == state.groups[group].layers.size()) {
        return std::nullopt;
    }
    return PagePlace{slot, layer};
}

VerifyReport verify_file(const format::Snapshot &snapshot, const std::shared_ptr<Model> &model,
                         const stasis_verify_options &given, Watch watch) {
    const State &state = snapshot.state();
    StoredPages pages;
    pages.read = [&](size_t group, uint64_t index, uint16_t *data) {
        const bool stored = snapshot.stored(group, index);
        if (stored) {
            snapshot.read_page(group, index, data);
        }
        return stored;
    };
    pages.locate = [&](size_t group, uint64_t index, const uint16_t *computed) {
        return locate_by_fingerprint(snapshot, group, index, computed);
    };
    if (given.audit_percent == 0) {
        return verify(model, state, pages, {given.chunk, watch});
    }
    return audit(model, state, pages,
                 {{given.chunk, watch}, given.audit_percent, given.audit_seed});
}

void write_report(const VerifyReport &from, stasis_verify_report *report) {
    static_assert(STASIS_NOWHERE == Divergence::kNowhere);
    const Divergence first = from.first.value_or(Divergence());
    stasis_verify_report to{};
    to.verified = from.first ? 0 : 1;
    to.positions = from.positions;
    to.position = first.position;
    to.layer = first.layer;
    to.element = first.element;
    write_field(first.message, to.message, sizeof to.message);
    to.head = first.head;
    to.part = first.part;
    to.drawn = from.drawn;
    to.drawn_otherwise = from.drawn_otherwise;
    to.audit_pages = from.pages_reachable;
    to.audit_drawn = from.pages_drawn;
    to.unreachable_begin = from.unreachable_begin;
    to.unreachable_end = from.unreachable_end;
    write_struct(to, report, "report");
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

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
        require(path, "path");
        const Busy busy(session->busy, "session");
        const stasis_save_options given = read_struct(options, "options");
        CallWatch watch(caller, given.cancel, given.progress, given.progress_user);
        save(*session->session, path, given, watch.watch());
    });
}

stasis_status stasis_session_load(stasis_model *model, const char *path,
                                  const stasis_load_options *options, stasis_session **session,
                                  stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(model, "model");
        require(path, "path");
        require(session, "session");
        const stasis_load_options given = read_struct(options, "options");
        CallWatch watch(caller, given.cancel, given.progress, given.progress_user);
        *session = new stasis_session(load(model->model, path, given, watch.watch()));
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
        CallWatch watch(caller, given.cancel, given.progress, given.progress_user);
        const stasis::VerifyReport found =
            verify_file(*snapshot->snapshot, model->model, given, watch.watch());
        write_report(found, report);
        if (found.first) {
            fail(stasis::Status::diverged, "element %u: %s", found.first->element,
                 found.first->message.c_str());
        }
    });
}
