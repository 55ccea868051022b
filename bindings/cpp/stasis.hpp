// Stasis for C++20: the C interface of stasis.h with handles that release themselves, exceptions in
// place of statuses, and ranges over tokens. Include this file; it includes the others, which are
// inline and need nothing but stasis.h, whose library a program links.
//
// What a call does, who may call it from which thread and which errors it has is said once, in
// stasis.h and the headers that it includes, under the name of the C function: Session::rewind is
// stasis_session_rewind. What these files say in addition:
//
// Handles (Model, Session, Snapshot, Store, Generation, Scheduler, Cancel, TextStream, Threads) are
// moved and not copied; Session::fork makes a second session. Sessions keep their model's memory: a
// Model may be destroyed before them. A handle that was moved from can be assigned to and
// destroyed; every other call throws Error(InvalidArgument).
//
// Errors. A call that cannot do its work throws Error, and everything is as it was before. What a
// callback throws (progress, logits, sinks, sources, traces, backends) ends the call and is thrown
// by it.
//
// Threads. `const` functions of Model and Cancel, and all of Scheduler and Store, may be called by
// any number of threads. A session, its generations and a snapshot serve one caller at a time,
// `const` or not: a second one gets Error(Busy).
//
// Structs of the C interface that describe something (info, reports) are used as they are; pointers
// in them live as stasis.h says. Options have structs here, whose members can be named in braces,
// {.tokens_max = 40}: what is left out means the default.
#pragma once

#include "stasis/backend.hpp"
#include "stasis/cancel.hpp"
#include "stasis/error.hpp"
#include "stasis/generation.hpp"
#include "stasis/model.hpp"
#include "stasis/options.hpp"
#include "stasis/quantize.hpp"
#include "stasis/sampling.hpp"
#include "stasis/scheduler.hpp"
#include "stasis/session.hpp"
#include "stasis/snapshot.hpp"
#include "stasis/step.hpp"
#include "stasis/store.hpp"
#include "stasis/text_stream.hpp"
#include "stasis/threads.hpp"
#include "stasis/trace.hpp"
