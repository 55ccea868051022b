// Schedulers: many sessions that generate together.

package stasis

// #include "bridge.h"
//
// static void close_scheduler(void *scheduler) { stasis_scheduler_close(scheduler); }
import "C"

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// SchedulerOptions say how a scheduler works; the zero value is the default in every field. None
// influences results.
type SchedulerOptions struct {
	SessionsMax int           // that draw a token in a pass; 0: 64
	Stall       time.Duration // what prompts may add to a pass; 0: 100 ms
	Slice       int           // positions of prompts in a pass; 0: by Stall and the measured speed
	EventsMax   uint64        // events of a session that wait; 0: 16
}

// A SchedulerPrompt is what a session appends before it generates: tokens, a turn, or what its log
// lacks of a conversation in JSON (stasis_chat.h), with the prompt for a reply.
type SchedulerPrompt struct {
	Tokens       []Token
	Message      Message // if it has a role
	Conversation string  // if it is not empty
}

// A SchedulerEvent is a token of a session, or its end, whose Text was held back.
type SchedulerEvent struct {
	Session *Session
	Generated
	End        bool
	StopReason StopReason // with End
	Err        error      // with End: what ended this session alone; ErrCancelled too
	Pass       uint64     // the scheduler's, counted from 1
	Begin      uint64     // with End: position of the first new token
	Count      uint64     // with End: new tokens
}

// SchedulerStats say what a scheduler has done.
type SchedulerStats struct {
	Sessions        uint64 // submitted, and their end not fetched
	Events          uint64 // that wait
	Passes          uint64
	Tokens          uint64 // drawn
	PromptPositions uint64 // of prompts, computed or taken from the prefix cache
	MostTogether    uint64 // sessions in a pass
	Slice           uint64 // positions that the next pass has for prompts
	PassMax         time.Duration
}

// A Scheduler generates for many sessions of a model together: a token of each in a pass over the
// weights, and prompts in slices beside them. Each session gets the bits that it gets alone.
// Goroutines that each call Session.Generate get the throughput of one; this is the way for many.
//
// It has no goroutine and no thread of its own: whoever waits in Next computes. Any number of
// goroutines may, each for its own session or all for any.
type Scheduler struct {
	handle
	mutex    sync.Mutex
	sessions map[unsafe.Pointer]*scheduled
}

// A scheduled session is kept from being freed until its end was fetched. One that is submitted
// again may be before its last end has been taken in.
type scheduled struct {
	session *Session
	times   int
}

// pollInterval is how long a call of the library waits while the context can be done.
const pollInterval = 20 * time.Millisecond

// NewScheduler creates a scheduler. Options may be nil.
func (m *Model) NewScheduler(options *SchedulerOptions) (*Scheduler, error) {
	c := brief("create scheduler")
	var given C.stasis_scheduler_options
	C.stasis_scheduler_options_init(&given, C.sizeof_stasis_scheduler_options)
	if options != nil {
		given.sessions_max = c.count("SessionsMax", options.SessionsMax)
		given.stall_ms = c.count("Stall", int(options.Stall/time.Millisecond))
		given.slice = c.count("Slice", options.Slice)
		given.events_max = C.uint64_t(options.EventsMax)
	}
	var made *C.stasis_scheduler
	err := m.call(c, func(model *C.stasis_model, failure *C.stasis_error) C.stasis_status {
		return C.stasis_scheduler_create(model, &given, &made, failure)
	})
	if err != nil {
		return nil, err
	}
	s := &Scheduler{handle: handle{pointer: unsafe.Pointer(made),
		free: func(scheduler unsafe.Pointer) { C.close_scheduler(scheduler) }},
		sessions: map[unsafe.Pointer]*scheduled{}}
	runtime.SetFinalizer(s, (*Scheduler).Close)
	return s, nil
}

// Submit gives a session to the scheduler: it appends the prompt, which may be nil, and generates,
// as Session.Generate with these options, which may be nil too. Computes nothing yet. Until its end
// was fetched the session can be read, as it is before its prompt and between its tokens, and what
// would change it gets ErrBusy. ErrConflict: the log differs from the prompt's conversation, or has
// more; after Rewind to the position of Session.ChatTokens the same call takes it.
func (s *Scheduler) Submit(session *Session, options *GenerateOptions,
	prompt *SchedulerPrompt) error {
	c := brief("submit")
	given := c.generateOptions(options, nil)
	var first C.stasis_prompt
	C.stasis_prompt_init(&first, C.sizeof_stasis_prompt)
	if prompt != nil {
		first.tokens = tokenArray(array(c, prompt.Tokens))
		first.token_count = C.size_t(len(prompt.Tokens))
		first.role = c.text("the role", prompt.Message.Role)
		if text := array(c, []byte(prompt.Message.Text)); len(text) > 0 {
			first.text = (*C.char)(unsafe.Pointer(&text[0]))
			first.length = C.size_t(len(text))
		}
		if text := array(c, []byte(prompt.Conversation)); len(text) > 0 {
			first.conversation = (*C.char)(unsafe.Pointer(&text[0]))
			first.conversation_length = C.size_t(len(text))
		}
	}
	own, err := session.take(c.op)
	if err != nil {
		c.refuse(err)
		return c.run(nil)
	}
	s.keep(own, session)
	err = s.use(c, func(object unsafe.Pointer, failure *C.stasis_error) C.stasis_status {
		return C.stasis_scheduler_submit((*C.stasis_scheduler)(object), (*C.stasis_session)(own),
			given, &first, failure)
	})
	runtime.KeepAlive(s)
	if err != nil {
		s.letGo(own)
	}
	return err
}

func (s *Scheduler) keep(own unsafe.Pointer, session *Session) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.sessions[own] == nil {
		s.sessions[own] = &scheduled{session: session}
	}
	s.sessions[own].times++
}

func (s *Scheduler) letGo(own unsafe.Pointer) *Session {
	s.mutex.Lock()
	kept := s.sessions[own]
	if kept == nil { // the scheduler was closed meanwhile
		s.mutex.Unlock()
		return nil
	}
	if kept.times--; kept.times == 0 {
		delete(s.sessions, own)
	}
	s.mutex.Unlock()
	kept.session.giveBack()
	return kept.session
}

// Next waits for an event of a session (nil: of any, taking turns), computing meanwhile. The error
// is the context's (ErrCancelled; nothing is lost, the next call goes on), that of a whole pass
// (all sessions are as they were, the next call tries again), or that of a call that makes no
// sense; ErrNotFound: the session is not in this scheduler. What ends one session is in its event.
func (s *Scheduler) Next(ctx context.Context, session *Session) (SchedulerEvent, error) {
	var own unsafe.Pointer
	if session != nil {
		if own = s.addressOf(session); own == nil {
			return SchedulerEvent{}, &Error{Op: "next", Status: ErrNotFound,
				Message: "the session is not in this scheduler"}
		}
	}
	event, _, err := s.wait(ctx, own, nil)
	return event, err
}

// wait waits for an event of a session (nil: of any), until `over`, if there is one, says that none
// will come. It reports whether one has.
func (s *Scheduler) wait(ctx context.Context, own unsafe.Pointer,
	over func() bool) (SchedulerEvent, bool, error) {
	defer runtime.KeepAlive(s)
	part := C.uint64_t(math.MaxUint64)
	if ctx.Done() != nil || over != nil {
		part = C.uint64_t(pollInterval / time.Millisecond)
	}
	for {
		if ctx.Err() != nil {
			return SchedulerEvent{}, false, &Error{Op: "next", Status: ErrCancelled,
				Cause: ctx.Err()}
		}
		var event *C.stasis_scheduler_event
		err := s.use(brief("next"), func(object unsafe.Pointer,
			failure *C.stasis_error) C.stasis_status {
			return C.stasis_scheduler_next((*C.stasis_scheduler)(object), (*C.stasis_session)(own),
				part, &event, failure)
		})
		if err != nil {
			return SchedulerEvent{}, false, err
		}
		if event != nil {
			return s.eventOf(event), true, nil
		}
		if over != nil && over() {
			return SchedulerEvent{}, false, nil
		}
	}
}

func (s *Scheduler) addressOf(session *Session) unsafe.Pointer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for own, kept := range s.sessions {
		if kept.session == session {
			return own
		}
	}
	return nil
}

func (s *Scheduler) eventOf(own *C.stasis_scheduler_event) SchedulerEvent {
	defer C.stasis_scheduler_event_free(own)
	event := SchedulerEvent{End: own.end != 0, Pass: uint64(own.pass),
		Generated: generatedOf(&C.stasis_generated{token: own.token, position: own.position,
			text: own.text, length: own.length, last: own.end,
			log_probability: own.log_probability, best_tokens: own.best_tokens,
			best_log_probabilities: own.best_log_probabilities,
			log_probability_count:  own.log_probability_count})}
	pointer := unsafe.Pointer(own.session)
	if !event.End {
		s.mutex.Lock()
		if kept := s.sessions[pointer]; kept != nil {
			event.Session = kept.session
		}
		s.mutex.Unlock()
		return event
	}
	event.StopReason = StopReason(own.stop_reason)
	event.Begin, event.Count = uint64(own.begin), uint64(own.count)
	if own.status != C.STASIS_OK {
		event.Err = &Error{Op: "generate", Status: Status(own.status),
			Message: C.GoString(own.message)}
	}
	event.Session = s.letGo(pointer)
	return event
}

// Cancel ends a session: its last event has ErrCancelled. A prompt that was not complete is undone,
// and tokens stay. Does not wait.
func (s *Scheduler) Cancel(session *Session) error {
	defer runtime.KeepAlive(s)
	own := s.addressOf(session)
	if own == nil {
		return &Error{Op: "cancel", Status: ErrNotFound,
			Message: "the session is not in this scheduler"}
	}
	return s.use(brief("cancel"), func(object unsafe.Pointer,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_scheduler_cancel((*C.stasis_scheduler)(object), (*C.stasis_session)(own),
			failure)
	})
}

// Stats reports at this moment.
func (s *Scheduler) Stats() (SchedulerStats, error) {
	defer runtime.KeepAlive(s)
	own := C.stasis_scheduler_stats{struct_size: C.sizeof_stasis_scheduler_stats}
	err := s.use(brief("scheduler stats"), func(object unsafe.Pointer,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_scheduler_get_stats((*C.stasis_scheduler)(object), &own, failure)
	})
	return SchedulerStats{
		Sessions: uint64(own.sessions), Events: uint64(own.events), Passes: uint64(own.passes),
		Tokens: uint64(own.tokens), PromptPositions: uint64(own.prompt_positions),
		MostTogether: uint64(own.most_together), Slice: uint64(own.slice),
		PassMax: time.Duration(own.pass_us_max) * time.Microsecond,
	}, err
}

// Close ends everything: sessions are let go, and goroutines that wait in Next get ErrCancelled. It
// returns nil.
func (s *Scheduler) Close() error {
	runtime.SetFinalizer(s, nil)
	if scheduler, err := s.take("close"); err == nil {
		C.stasis_scheduler_stop((*C.stasis_scheduler)(scheduler))
		s.giveBack()
	}
	s.close()
	s.mutex.Lock()
	left := s.sessions
	s.sessions = map[unsafe.Pointer]*scheduled{}
	s.mutex.Unlock()
	for _, kept := range left {
		for ; kept.times > 0; kept.times-- {
			kept.session.giveBack()
		}
	}
	return nil
}
