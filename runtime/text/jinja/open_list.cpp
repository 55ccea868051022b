// What may be done with a list of messages whose number is left open, and what closes it; see
// open_list.h.
#include "runtime/text/jinja/open_list.h"

#include <algorithm>

namespace stasis::jinja {

Value OpenList::make(std::shared_ptr<OpenMessages> messages, size_t from) {
    // The depth is that of a closed list: whoever stores this in another one asks for it there.
    return {std::make_shared<const ListValue>(
        ListValue{{}, 1, std::make_shared<OpenList>(std::move(messages), from)})};
}

std::span<const Value> OpenList::items() const {
    const std::span<const Value> all(messages_->items.data(), messages_->count);
    return all.subspan(std::min(from_, all.size()));
}

void OpenList::seen(size_t items) {
    if (items > 0) {
        messages_->horizon = std::max(messages_->horizon, from_ + items);
    }
}

Value OpenList::item(size_t at) {
    if (at >= size()) {
        return {};
    }
    seen(at + 1);
    return items()[at];
}

Value OpenList::rest(size_t begin) const {
    // Beyond all messages is beyond those of each beginning.
    const size_t most = messages_->items.size();
    return make(messages_, from_ + std::min(begin, most));
}

void OpenList::compared(size_t length, size_t horizon) {
    if (size() > length) {
        messages_->horizon = horizon;
        seen(length + 1);
    }
}

const ListValue *OpenList::closed() {
    messages_->horizon = SIZE_MAX;
    if (made_.list() == nullptr || made_count_ != messages_->count) {
        const std::span<const Value> now = items();
        made_ = make_list(List(now.begin(), now.end()));
        made_count_ = messages_->count;
    }
    return made_.list();
}

} // namespace stasis::jinja
