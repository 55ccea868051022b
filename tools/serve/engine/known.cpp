// Requests that are no replies of a model, each known to the engine from its admission to its end,
// so that the server ends after them; see routes.h.
#include "tools/serve/engine/routes.h"

namespace serve {
namespace {

struct Known {
    explicit Known(Engine &of) : engine(of), cancel(make_cancel()) {
        engine.enter(cancel.get(), 0);
    }
    ~Known() { engine.forget(cancel.get()); }
    Known(const Known &) = delete;
    Known &operator=(const Known &) = delete;

    Engine &engine;
    const command::Cancel cancel;
};

struct Stored : Known {
    explicit Stored(Engine &of) : Known(of) { engine.enter_stored(); }
    ~Stored() { engine.leave_stored(); }
};

// Before it begins: somebody waits for it, and the server does not end.
void require_wanted(const Known &known, const Call &call) {
    if (known.engine.closing() || call.exchange->gone()) {
        throw refusal(STASIS_CANCELLED, "");
    }
}

void answer_on_worker(std::shared_ptr<Known> known, const Call &call,
                      std::function<void()> answer) {
    Workers &workers = known->engine.workers();
    workers.post([known = std::move(known), call, answer = std::move(answer)] {
        call.guarded([&] {
            require_wanted(*known, call);
            answer();
        });
    });
}

} // namespace

void answer_soon(Engine &engine, const Call &call, std::function<void()> answer) {
    answer_on_worker(std::make_shared<Known>(engine), call, std::move(answer));
}

void answer_from_store(Engine &engine, const Call &call, std::function<void()> answer) {
    answer_on_worker(std::make_shared<Stored>(engine), call, std::move(answer));
}

void answer_slowly(Engine &engine, const Call &call, std::function<void(stasis_cancel *)> answer) {
    engine.require_slow_place();
    const auto slow = std::make_shared<Known>(engine);
    call.exchange->on_gone([weak = std::weak_ptr(slow)] {
        if (const std::shared_ptr<Known> here = weak.lock()) {
            stasis_cancel_request(here->cancel.get());
        }
    });
    engine.slow_workers().post([slow, call, answer = std::move(answer)] {
        call.guarded([&] {
            try {
                require_wanted(*slow, call);
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
