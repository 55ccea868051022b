// Requests that may take minutes; see answer_slowly in routes.h.
#include "tools/serve/engine/routes.h"

namespace serve {
namespace {

// Known to the engine from its admission to its end.
struct Slow {
    explicit Slow(Engine &of) : engine(of), cancel(make_cancel()) { engine.enter(cancel.get(), 0); }
    ~Slow() { engine.forget(cancel.get()); }

    Engine &engine;
    const command::Cancel cancel;
};

} // namespace

void answer_slowly(Engine &engine, const Call &call, std::function<void(stasis_cancel *)> answer) {
    engine.require_slow_place();
    const auto slow = std::make_shared<Slow>(engine);
    call.exchange->on_gone([weak = std::weak_ptr(slow)] {
        if (const std::shared_ptr<Slow> here = weak.lock()) {
            stasis_cancel_request(here->cancel.get());
        }
    });
    engine.slow_workers().post([slow, call, answer = std::move(answer)] {
        call.guarded([&] {
            try {
                if (slow->engine.closing() || call.exchange->gone()) {
                    throw refusal(STASIS_CANCELLED, "");
                }
                answer(slow->cancel.get());
            } catch (const api::Refused &refused) {
                if (refused.code == refusal(STASIS_CANCELLED, "").code) {
                    ++slow->engine.counts().slow_cut;
                }
                throw;
            }
        });
    });
}

} // namespace serve
