// The messages of a conversation while its beginnings are rendered together with it: a list that
// knows which of its beginnings have given the same so far. Only what a template does to it here
// (an item from the front, a rest, a loop, truth) leaves that open; everything else sees a list as
// it is now, and thereby that of one length only.
#pragma once

#include <memory>
#include <span>

#include "runtime/text/jinja/value.h"

namespace stasis::jinja {

struct OpenMessages {
    List items;
    size_t count = 0;   // that the rendering has which runs now
    size_t horizon = 0; // renderings of this many and more have computed the same so far
};

// What follows the first `from` messages.
class OpenList {
  public:
    OpenList(std::shared_ptr<OpenMessages> messages, size_t from)
        : messages_(std::move(messages)), from_(from) {}

    static Value make(std::shared_ptr<OpenMessages> messages, size_t from);

    size_t from() const { return from_; }
    std::span<const Value> items() const;
    size_t size() const { return items().size(); }

    // What was computed is the same for each list that has the first `items` of this.
    void seen(size_t items);
    Value item(size_t at); // something undefined after the end
    Value rest(size_t begin) const;
    size_t horizon() const { return messages_->horizon; }
    // Its length has been asked for since `horizon` only to be compared with another.
    void compared(size_t length, size_t horizon);
    // Returns all of it, which is not the same for any other length.
    const ListValue *closed();

  private:
    std::shared_ptr<OpenMessages> messages_;
    size_t from_;
    Value made_; // by `closed`, of made_count_ messages
    size_t made_count_ = 0;
};

} // namespace stasis::jinja
