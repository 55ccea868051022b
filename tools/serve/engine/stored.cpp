// Data of sessions, and ids; see stored.h.
#include "tools/serve/engine/stored.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "tools/serve/api/members.h"
#include "tools/serve/engine/prefixes.h"
#include "tools/serve/engine/served_model.h"

namespace serve {

std::string data_of(const stasis_session *session, const char *name) {
    size_t length = 0;
    stasis_error error{};
    stasis_status status = stasis_session_get_data(session, name, nullptr, 0, &length, &error);
    std::string bytes(length, '\0');
    if (status == STASIS_BUFFER_TOO_SMALL) {
        status =
            stasis_session_get_data(session, name, bytes.data(), bytes.size(), &length, &error);
    }
    if (status == STASIS_NOT_FOUND) {
        return "";
    }
    require(status, error);
    return bytes;
}

void set_data(stasis_session *session, const char *name, const std::string &bytes) {
    stasis_error error{};
    require(stasis_session_set_data(session, name, bytes.data(), bytes.size(), &error), error);
}

void clear_data(stasis_session *session, const char *name) {
    stasis_error error{};
    const stasis_status status = stasis_session_set_data(session, name, nullptr, 0, &error);
    if (status != STASIS_NOT_FOUND) {
        require(status, error);
    }
}

namespace {

constexpr size_t kPieceMin = 4096;   // from which on a store has a value as an object of its own
constexpr size_t kPieces = 128;      // of a long text, about
constexpr size_t kPiecesMost = 1000; // names that piece_name can give

std::string piece_name(const std::string &name, size_t index) {
    const std::string digits = std::to_string(index);
    return name + "." + std::string(3 - std::min<size_t>(digits.size(), 3), '0') + digits;
}

std::vector<std::string> pieces_of(const stasis_session *session, const std::string &name) {
    std::vector<std::string> pieces;
    for (;;) {
        std::string piece = data_of(session, piece_name(name, pieces.size()).c_str());
        if (piece.empty()) {
            return pieces;
        }
        pieces.push_back(std::move(piece));
    }
}

// Clears all pieces that there may be, from one on.
void clear_pieces(stasis_session *session, const std::string &name, size_t from) {
    for (size_t i = from; i < kPiecesMost; ++i) {
        clear_data(session, piece_name(name, i).c_str());
    }
}

std::string text_of(const api::Json &value) {
    return value.dump(-1, ' ', false, api::Json::error_handler_t::replace);
}

// Returns the object's text, cut before each member and each element of one that is a list.
std::vector<std::string> cut(const api::Json &object) {
    std::vector<std::string> parts;
    std::string lead = "{";
    for (const auto &[name, value] : object.items()) {
        const std::string key = lead + text_of(name) + ":";
        lead = ",";
        if (!value.is_array() || value.empty()) {
            parts.push_back(key + text_of(value));
            continue;
        }
        std::string before = key + "[";
        for (const api::Json &element : value) {
            parts.push_back(before + text_of(element));
            before = ",";
        }
        parts.emplace_back("]");
    }
    parts.emplace_back(object.empty() ? "{}" : "}");
    return parts;
}

// Joins the parts to pieces after those that there are, which have the first `at` bytes. A piece
// ends before the end of a list, where the next turn goes on.
void join(const std::vector<std::string> &parts, size_t at, size_t least,
          std::vector<std::string> &pieces) {
    std::string piece;
    const auto end_piece = [&] {
        if (!piece.empty()) {
            pieces.push_back(std::move(piece));
            piece.clear();
        }
    };
    for (const std::string &part : parts) {
        const size_t skipped = std::min(at, part.size());
        at -= skipped;
        if (part.size() - skipped >= least || part == "]") {
            end_piece();
        }
        piece += part.substr(skipped);
        if (piece.size() >= least) {
            end_piece();
        }
    }
    end_piece();
}

} // namespace

std::string object_text(const stasis_session *session, const char *name) {
    std::string text;
    for (const std::string &piece : pieces_of(session, name)) {
        text += piece;
    }
    return text.empty() ? data_of(session, name) : text; // as it was kept before there were pieces
}

void set_object(stasis_session *session, const char *name, const api::Json &object) {
    const std::vector<std::string> parts = cut(object);
    std::string text;
    for (const std::string &part : parts) {
        text += part;
    }
    const std::vector<std::string> had = pieces_of(session, name);
    const size_t least = std::max(kPieceMin, text.size() / kPieces);
    std::vector<std::string> pieces;
    size_t at = 0;
    for (const std::string &piece : had) {
        if (text.compare(at, piece.size(), piece) != 0) {
            break;
        }
        at += piece.size();
        pieces.push_back(piece);
    }
    // Short ones become one with what follows when that is as long: so they are few, and each byte
    // is written again once for each power of two of its turns.
    while (!pieces.empty() && pieces.back().size() < kPieceMin &&
           pieces.back().size() <= text.size() - at) {
        at -= pieces.back().size();
        pieces.pop_back();
    }
    if (pieces.size() > 2 * kPieces) {
        pieces.clear();
        at = 0;
    }
    const size_t kept = pieces.size();
    join(parts, at, least, pieces);
    for (size_t i = kept; i < pieces.size(); ++i) {
        set_data(session, piece_name(name, i).c_str(), pieces[i]);
    }
    for (size_t i = pieces.size(); i < had.size(); ++i) {
        clear_data(session, piece_name(name, i).c_str());
    }
    clear_data(session, name);
}

void clear_object(stasis_session *session, const char *name) {
    for (size_t i = pieces_of(session, name).size(); i-- > 0;) {
        clear_data(session, piece_name(name, i).c_str());
    }
    clear_data(session, name);
}

std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

void merge_data(const stasis_session *from, stasis_session *to) {
    for (const char *name : {kConversationData, kResponseData}) {
        const std::string text = object_text(from, name);
        if (api::Json::accept(text) && object_text(to, name).empty()) {
            set_object(to, name, api::Json::parse(text));
        }
    }
    std::string names = data_of(to, kNamesData);
    const std::vector<std::string> has = lines_of(names);
    for (const std::string &name : lines_of(data_of(from, kNamesData))) {
        if (std::find(has.begin(), has.end(), name) == has.end()) {
            names += name + "\n";
        }
    }
    set_data(to, kNamesData, names);
}

std::vector<std::string> cut_names(stasis_session *session) {
    std::string kept;
    std::vector<std::string> others;
    std::map<char, size_t> counts;
    for (const std::string &name : lines_of(data_of(session, kNamesData))) {
        if (counts[name[0]]++ < kNamesMost) {
            kept += name + "\n";
        } else {
            others.push_back(name);
        }
    }
    if (!others.empty()) {
        set_data(session, kNamesData, kept);
    }
    return others;
}

bool has_text(const api::Json &object, const char *name) {
    return object.is_object() && object.contains(name) && object[name].is_string();
}

bool is_call(const api::Json &call) {
    return has_text(call, "id") && call.contains("function") &&
           has_text(call["function"], "name") && call["function"].contains("arguments");
}

// Whether a message has what is read of it, in the form in which this server keeps it.
bool is_message(const api::Json &message) {
    if (!has_text(message, "role") || !has_text(message, "content") ||
        (message["role"] == "tool" && !has_text(message, "tool_call_id")) ||
        (message.contains("reasoning_content") && !has_text(message, "reasoning_content"))) {
        return false;
    }
    const api::Json calls = message.value("tool_calls", api::Json::array());
    return calls.is_array() && std::all_of(calls.begin(), calls.end(), is_call);
}

void check_data(stasis_session *session) {
    clear_object(session, kResponseData);
    clear_data(session, kNamesData);
    clear_pieces(session, kResponseData, 0);
    // Behind a gap there may be pieces that nobody reads now, but that a later one would join.
    clear_pieces(session, kConversationData, pieces_of(session, kConversationData).size());
    const std::string text = object_text(session, kConversationData);
    if (text.empty()) {
        return;
    }
    const api::Json conversation = api::parse_body(text);
    const auto bad = [] {
        throw api::Refused{400, "invalid_snapshot", "the file's conversation is none", ""};
    };
    if (!conversation.is_object() || !conversation.contains("messages") ||
        !conversation["messages"].is_array() || conversation["messages"].empty()) {
        bad();
    }
    for (const api::Json &message : conversation["messages"]) {
        if (!is_message(message)) {
            bad();
        }
    }
    if (conversation.contains("tools") && !conversation["tools"].is_array()) {
        bad();
    }
}

uint64_t domain_of(const std::string &tenant) {
    if (tenant == kOneTenant) {
        return STASIS_DOMAIN_COMMON;
    }
    const uint64_t domain = std::stoull(sha256(tenant).substr(0, 16), nullptr, 16);
    return domain == STASIS_DOMAIN_PRIVATE ? 1 : domain;
}

std::string id_in(const std::string &text, const std::string &prefix) {
    const std::string id = text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    const bool hexadecimal = id.find_first_not_of("0123456789abcdef") == std::string::npos;
    const bool long_enough =
        id.size() == 2 * sizeof(stasis_digest) || id.size() == kRequestIdLength;
    return hexadecimal && long_enough ? id : "";
}

int64_t now() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

} // namespace serve
