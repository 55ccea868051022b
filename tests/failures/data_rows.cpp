// Failing calls on a host's data and on turns: in sessions, in files and in snapshots.
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

constexpr char kValue[] = "some bytes";

void set_data(stasis_session *session, const char *name, const std::string &bytes) {
    REQUIRE(stasis_session_set_data(session, name, bytes.data(), bytes.size(), nullptr) ==
            STASIS_OK);
}

// A session with data, and a file of an earlier state of it.
struct Kept {
    Folder folder;
    std::string path = folder.file("a.stasis");
    Session session;
    Snapshot snapshot;

    explicit Kept(stasis_model *model) : session(session_of(model, some_tokens(40))) {
        set_data(session.get(), "title", "A title");
        set_data(session.get(), "large", std::string(400000, 'x')); // more than is written at once
        REQUIRE(save(session.get(), path) == STASIS_OK);
        snapshot = open_snapshot(path);
        set_data(session.get(), "title", "Another title");
        set_data(session.get(), "user", "");
        append(session.get(), some_tokens(3, 2));
    }
};

template <class Handle, class List, class Get>
std::string data_of(const Handle *handle, const List &list, const Get &get) {
    size_t count = 0;
    std::vector<stasis_data_entry> entries(8);
    REQUIRE(list(handle, entries.data(), sizeof entries[0], entries.size(), &count, nullptr) ==
            STASIS_OK);
    std::string all;
    for (size_t i = 0; i < count; ++i) {
        std::string bytes(entries[i].bytes, '\0');
        size_t length = 0;
        REQUIRE(get(handle, entries[i].name, bytes.data(), bytes.size(), &length, nullptr) ==
                STASIS_OK);
        all += std::string(entries[i].name) + "=" + bytes + ";";
    }
    return all;
}

std::string data_of(const stasis_session *session) {
    return data_of(session, stasis_session_list_data, stasis_session_get_data);
}

Row setting(const char *detail, const char *name, const char *bytes) {
    return {"stasis_session_set_data", detail, Needs::warm_model, kGemma, [=](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const std::string before = data_of(kept->session.get());
                return Trial{[=](stasis_error *error) {
                                 return stasis_session_set_data(
                                     kept->session.get(), name, bytes,
                                     bytes == nullptr ? 0 : sizeof kValue - 1, error);
                             },
                             [=] { CHECK(data_of(kept->session.get()) == before); },
                             [=] { return data_of(kept->session.get()); }};
            }};
}

// The file holds the data of the state before or of the state after, never another.
Row saving_data() {
    return {"stasis_session_save", "data that changed", Needs::warm_model, kGemma,
            [](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const auto in_file = [=] {
                    const Session there = load(model, kept->path);
                    return data_of(there.get()) + outcome_of(there.get());
                };
                const std::string before = in_file();
                const std::string own =
                    data_of(kept->session.get()) + outcome_of(kept->session.get());
                return Trial{[=](stasis_error *error) {
                                 return stasis_session_save(kept->session.get(), kept->path.c_str(),
                                                            nullptr, error);
                             },
                             [=] {
                                 const std::string now = in_file();
                                 CHECK((now == before || now == own));
                             },
                             [=] {
                                 CHECK(in_file() == own);
                                 return own;
                             }};
            }};
}

Row loading_data() {
    return {"stasis_session_load", "with data", Needs::warm_model, kGemma, [](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const auto out = std::make_shared<Session>();
                return Trial{[=](stasis_error *error) {
                                 stasis_session *made = nullptr;
                                 const stasis_status status = stasis_session_load(
                                     model, kept->path.c_str(), nullptr, &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 out->reset(made);
                                 return status;
                             },
                             [] {}, [=] { return data_of(out->get()); }};
            }};
}

// A call that puts what it has to say into `out`.
Row telling(const char *function,
            std::function<stasis_status(const Kept &, std::string &, stasis_error *)> call) {
    return {function, "", Needs::warm_model, kGemma, [=](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const auto out = std::make_shared<std::string>();
                out->reserve(1 << 20); // taken before the call
                return Trial{[=](stasis_error *error) { return call(*kept, *out, error); },
                             [=] { CHECK(out->empty()); }, [=] { return *out; }};
            }};
}

template <class Struct>
void tell(std::string &out, const Struct *from, size_t count, stasis_status status) {
    out.assign(reinterpret_cast<const char *>(from),
               status == STASIS_OK ? count * sizeof *from : 0);
}

} // namespace

std::vector<Row> data_rows() {
    static char buffer[1 << 19];
    static stasis_data_entry entries[8];
    static stasis_turn turns[8];
    return {
        setting("a new name", "new", kValue),
        setting("another value", "title", kValue),
        setting("removed", "title", nullptr),
        saving_data(),
        loading_data(),
        telling("stasis_session_get_data",
                [](const Kept &kept, std::string &out, stasis_error *error) {
                    size_t length = 0;
                    const stasis_status status = stasis_session_get_data(
                        kept.session.get(), "large", buffer, sizeof buffer, &length, error);
                    tell(out, buffer, length, status);
                    return status;
                }),
        telling("stasis_snapshot_get_data",
                [](const Kept &kept, std::string &out, stasis_error *error) {
                    size_t length = 0;
                    const stasis_status status = stasis_snapshot_get_data(
                        kept.snapshot.get(), "large", buffer, sizeof buffer, &length, error);
                    tell(out, buffer, length, status);
                    return status;
                }),
        telling("stasis_session_list_data",
                [](const Kept &kept, std::string &out, stasis_error *error) {
                    size_t count = 0;
                    const stasis_status status = stasis_session_list_data(
                        kept.session.get(), entries, sizeof entries[0], 8, &count, error);
                    tell(out, entries, count, status);
                    return status;
                }),
        telling("stasis_snapshot_list_data",
                [](const Kept &kept, std::string &out, stasis_error *error) {
                    size_t count = 0;
                    const stasis_status status = stasis_snapshot_list_data(
                        kept.snapshot.get(), entries, sizeof entries[0], 8, &count, error);
                    tell(out, entries, count, status);
                    return status;
                }),
        telling("stasis_session_turns",
                [](const Kept &kept, std::string &out, stasis_error *error) {
                    size_t count = 0;
                    const stasis_status status = stasis_session_turns(
                        kept.session.get(), 0, turns, sizeof turns[0], 8, &count, error);
                    tell(out, turns, count, status);
                    return status;
                }),
        telling("stasis_snapshot_turns",
                [](const Kept &kept, std::string &out, stasis_error *error) {
                    size_t count = 0;
                    const stasis_status status = stasis_snapshot_turns(
                        kept.snapshot.get(), 0, turns, sizeof turns[0], 8, &count, error);
                    tell(out, turns, count, status);
                    return status;
                }),
    };
}

} // namespace failures
