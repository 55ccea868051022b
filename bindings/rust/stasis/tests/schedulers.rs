//! Schedulers: what their sessions say is what each says alone, whoever fetches it; sessions come
//! back whole, and all may be dropped in any order.
mod fixture;
use fixture::*;
use stasis::*;
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

const TURN: Prompt<'static> =
    Prompt::Message { role: "user", text: "Let's start by defining k equal to 5. What is k?" };

/// Small passes, so that sessions take turns and prompts come in slices.
fn scheduler(model: &Model) -> Scheduler {
    let options = SchedulerOptions { sessions_max: 5, slice: 16, ..Default::default() };
    Scheduler::create(model, options).unwrap()
}

fn tokens_max(tokens_max: u64) -> GenerateOptions<'static> {
    GenerateOptions { tokens_max, ignore_end: true, ..Default::default() }
}

/// What was heard of a session: tokens with their log-probabilities, text, and its end.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    tokens: Vec<(Token, u64, u32, Vec<Token>)>,
    text: String,
    end: Option<(Stop, u64, u64)>,
}

impl Heard {
    fn hear(&mut self, generated: Generated) {
        self.text += &generated.text;
        if !generated.last {
            let best = generated.best.iter().map(|(token, _)| *token).collect();
            let log_probability = generated.log_probability.to_bits();
            self.tokens.push((generated.token, generated.position, log_probability, best));
        }
    }

    fn hear_event(&mut self, event: SchedulerEvent) {
        assert_eq!(event.generated.last, event.end.is_some());
        assert!(event.pass > 0);
        self.hear(event.generated);
        if let Some(end) = event.end {
            end.outcome.unwrap();
            assert_eq!(self.end.replace((end.stop, end.begin, end.count)), None);
        }
    }
}

fn heard_alone(
    mut session: Session,
    options: GenerateOptions<'_>,
    prompt: Prompt<'_>,
) -> (Heard, Digest) {
    match prompt {
        Prompt::Nothing => {}
        Prompt::Tokens(tokens) => session.append(tokens, Default::default()).unwrap(),
        Prompt::Message { role, text } => {
            session.append_message(role, text, Reply::Prompt, Default::default()).unwrap()
        }
        Prompt::Conversation(conversation) => {
            let differs = session.append_chat(conversation, Reply::Prompt, Default::default());
            assert_eq!(differs.unwrap(), None);
        }
    }
    let mut heard = Heard::default();
    let mut generation = session.generate(options);
    generation.by_ref().for_each(|generated| heard.hear(generated.unwrap()));
    let result = generation.result();
    heard.end = Some((result.stop, result.begin, result.count));
    drop(generation);
    (heard, session.digest().unwrap())
}

#[test]
fn events_of_all() {
    let model = gemma();
    let scheduler = scheduler(&model);
    let begun: Vec<Session> =
        (0..3).map(|seed| session_of(&model, &some_tokens(20, seed))).collect();
    let prompts = [Prompt::Nothing, TURN, Prompt::Tokens(&[5; 70])];
    let choices = [
        tokens_max(9),
        GenerateOptions { stop_strings: &["is"], ..Default::default() },
        GenerateOptions { log_probabilities: 3, ..tokens_max(12) },
    ];
    let (mut alone, mut heard, mut scheduled) = (Vec::new(), HashMap::new(), Vec::new());
    for session in &begun {
        for prompt in prompts {
            for options in choices {
                alone.push(heard_alone(session.fork().unwrap(), options, prompt));
                let one = scheduler.submit(session.fork().unwrap(), options, prompt).unwrap();
                heard.insert(one.id(), Heard::default());
                scheduled.push(one);
            }
        }
    }
    assert_eq!(heard.len(), 27);
    for event in scheduler.events() {
        let event = event.unwrap();
        heard.get_mut(&event.id).unwrap().hear_event(event);
    }
    let drawn: usize = heard.values().map(|one| one.tokens.len()).sum();
    for (one, (expected, digest)) in scheduled.into_iter().zip(alone) {
        assert_eq!(heard[&one.id()], expected);
        assert_eq!(one.into_session().unwrap().digest().unwrap(), digest);
    }
    let stats = scheduler.stats().unwrap();
    assert_eq!((stats.sessions, stats.events, stats.tokens), (0, 0, drawn as u64));
    assert!(stats.most_together >= 5);
    assert!(stats.passes > 0 && stats.pass_max > Duration::ZERO && stats.slice == 16);
    assert!(scheduler.events().next().is_none());
}

#[test]
fn threads_of_their_own_sessions() {
    let model = gemma();
    let scheduler = scheduler(&model);
    let options = GenerateOptions { log_probabilities: 2, ..tokens_max(20) };
    let expected = heard_alone(alone(&model), options, TURN);
    thread::scope(|threads| {
        for _ in 0..12 {
            threads.spawn(|| {
                let mut session = alone(&model);
                for _ in 0..2 {
                    let scheduled = scheduler.submit(session, options, TURN).unwrap();
                    let mut heard = Heard::default();
                    for event in scheduled.events() {
                        let event = event.unwrap();
                        assert_eq!(event.id, scheduled.id());
                        heard.hear_event(event);
                    }
                    assert_eq!(heard, expected.0);
                    session = scheduled.into_session().unwrap();
                    assert_eq!(session.digest().unwrap(), expected.1);
                    session.rewind(0, true, Default::default()).unwrap(); // it is the caller's
                }
            });
        }
    });
    assert!(scheduler.stats().unwrap().most_together > 1);
}

#[test]
fn threads_of_all_sessions() {
    let model = tiny();
    let scheduler = scheduler(&model);
    let mut digests = HashMap::new();
    let mut scheduled = Vec::new();
    for seed in 0..10 {
        let tokens = some_tokens(40, seed);
        let options = tokens_max(3 + u64::from(seed));
        let (heard, digest) = heard_alone(alone(&model), options, Prompt::Tokens(&tokens));
        let one = scheduler.submit(alone(&model), options, Prompt::Tokens(&tokens)).unwrap();
        digests.insert(one.id(), (heard.tokens.len(), digest));
        scheduled.push(one);
    }
    // Each event goes to one of them, and all of them see the end.
    let counts: Vec<HashMap<ScheduledId, (usize, usize)>> = thread::scope(|threads| {
        let fetch = || {
            let mut counts = HashMap::new();
            for event in scheduler.events() {
                let event = event.unwrap();
                let count: &mut (usize, usize) = counts.entry(event.id).or_default();
                *if event.end.is_some() { &mut count.1 } else { &mut count.0 } += 1;
            }
            counts
        };
        let running: Vec<_> = (0..3).map(|_| threads.spawn(fetch)).collect();
        // One that waits for its own is told that another has fetched the end.
        let own = scheduled.iter().map(|one| threads.spawn(|| one.events().count()));
        let own: usize = own.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).sum();
        let counts: Vec<_> = running.into_iter().map(|one| one.join().unwrap()).collect();
        let told: usize = counts.iter().flat_map(HashMap::values).map(|one| one.0 + one.1).sum();
        assert_eq!(own + told, digests.values().map(|(count, _)| count + 1).sum::<usize>());
        counts
    });
    for one in scheduled {
        let (count, digest) = digests[&one.id()];
        let told = counts.iter().filter_map(|counts| counts.get(&one.id()));
        assert!(told.map(|(tokens, _)| *tokens).sum::<usize>() <= count);
        assert_eq!(one.into_session().unwrap().digest().unwrap(), digest);
    }
}

#[test]
fn a_session_can_be_read_and_not_changed() {
    let model = gemma();
    let scheduler = scheduler(&model);
    let mut same = asked(&model);
    let scheduled = scheduler.submit(same.fork().unwrap(), tokens_max(6), Prompt::Nothing).unwrap();
    let mut scheduled = Some(scheduled);
    for _ in 0..6 {
        let one = scheduled.take().unwrap().into_session().expect_err("it is not over");
        let event = one.next(None).unwrap().unwrap();
        assert_eq!(event.generated.token, same.decode().unwrap());
        assert_eq!(one.session().digest().unwrap(), same.digest().unwrap());
        let mut child = one.session().fork().unwrap();
        assert_eq!(child.decode().unwrap(), same.fork().unwrap().decode().unwrap());
        scheduled = Some(one);
    }
    let one = scheduled.take().unwrap();
    assert!(one.next(Some(Duration::from_secs(60))).unwrap().unwrap().end.is_some());
    assert_eq!(status(one.next(None)), Status::NotFound);
    assert_eq!(status(one.cancel()), Status::NotFound);
    assert!(one.events().next().is_none());
    one.into_session().unwrap().decode().unwrap();
}

#[test]
fn conversations() {
    let model = open("recall-llama");
    let scheduler = scheduler(&model);
    let first = r#"{"messages": [{"role": "user", "content": "What is k?"}]}"#;
    let other = first.replace("k?", "m?");
    let run = |session: Session, conversation| {
        let expected = heard_alone(session.fork().unwrap(), tokens_max(9), conversation);
        let one = scheduler.submit(session, tokens_max(9), conversation).unwrap();
        let mut heard = Heard::default();
        one.events().for_each(|event| heard.hear_event(event.unwrap()));
        let session = one.into_session().unwrap();
        assert_eq!((heard, session.digest().unwrap()), expected);
        session
    };
    let session = run(alone(&model), Prompt::Conversation(first));
    let digest = session.digest().unwrap();
    let again = Prompt::Conversation(&other);
    let Refused { mut session, error } =
        scheduler.submit(session, tokens_max(9), again).unwrap_err();
    assert_eq!(error.status(), Status::Conflict);
    assert_eq!(session.digest().unwrap(), digest);
    let differs = session.chat_tokens(&other, Reply::Prompt).unwrap().position;
    session.rewind(differs, false, Default::default()).unwrap();
    run(session, again);
}

#[test]
fn a_timeout_and_a_cancel() {
    let model = gemma();
    let scheduler = scheduler(&model);
    assert!(scheduler.next(Some(Duration::ZERO)).unwrap().is_none());
    assert!(scheduler.next(Some(Duration::from_micros(1))).unwrap().is_none());
    let before = session_of(&model, &some_tokens(30, 1));
    let digest = before.digest().unwrap();
    let cancel = Cancel::new().unwrap();
    for by_handle in [false, true] {
        let options = GenerateOptions { cancel: Some(&cancel), ..tokens_max(9) };
        let prompt = some_tokens(200, 2);
        let one =
            scheduler.submit(before.fork().unwrap(), options, Prompt::Tokens(&prompt)).unwrap();
        // A slice of the prompt, or a few. A wait of no time computes nothing.
        assert!(one.next(Some(Duration::ZERO)).unwrap().is_none());
        let passes = scheduler.stats().unwrap().passes;
        assert!(one.next(Some(Duration::from_nanos(1))).unwrap().is_none());
        assert!(scheduler.stats().unwrap().passes > passes);
        if by_handle {
            cancel.request();
        } else {
            one.cancel().unwrap();
        }
        let mut events: Vec<SchedulerEvent> = one.events().map(Result::unwrap).collect();
        let end = events.pop().unwrap().end.unwrap();
        assert!(events.is_empty());
        assert_eq!(
            (end.stop, end.count, status(end.outcome)),
            (Stop::Cancelled, 0, Status::Cancelled)
        );
        assert_eq!(one.into_session().unwrap().digest().unwrap(), digest);
    }
}

#[test]
fn refusals_give_the_session_back() {
    let model = gemma();
    let scheduler = scheduler(&model);
    let refused = |session: Session, options: GenerateOptions<'_>, prompt: Prompt<'_>| {
        let digest = session.digest().unwrap();
        let Refused { session, error } = scheduler.submit(session, options, prompt).unwrap_err();
        assert_eq!(session.digest().unwrap(), digest);
        assert_eq!(scheduler.stats().unwrap().sessions, 0);
        assert!(!error.message().is_empty());
        error.status()
    };
    let of = GenerateOptions::default;
    let strings = |strings| GenerateOptions { stop_strings: strings, ..of() };
    assert_eq!(refused(alone(&model), of(), Prompt::Nothing), Status::NotFound);
    assert_eq!(refused(alone(&tiny()), of(), Prompt::Tokens(&[1])), Status::InvalidArgument);
    assert_eq!(refused(asked(&model), strings(&[""]), TURN), Status::InvalidArgument);
    assert_eq!(refused(asked(&model), strings(&["a\0b"]), TURN), Status::InvalidArgument);
    let role = Prompt::Message { role: "us\0er", text: "" };
    assert_eq!(refused(asked(&model), of(), role), Status::InvalidArgument);
    for broken in ["[", ""] {
        let prompt = Prompt::Conversation(broken);
        assert_eq!(refused(alone(&model), of(), prompt), Status::InvalidArgument);
    }
    let unknown = [Token::MAX];
    assert_eq!(refused(asked(&model), of(), Prompt::Tokens(&unknown)), Status::InvalidArgument);
    let small = Session::create(&model, SessionOptions { capacity: 9, ..ALONE }).unwrap();
    assert_eq!(refused(small, of(), Prompt::Tokens(&some_tokens(10, 1))), Status::Full);
    for options in [
        SchedulerOptions { sessions_max: 1025, ..Default::default() },
        SchedulerOptions { slice: 1025, ..Default::default() },
    ] {
        assert_eq!(status(Scheduler::create(&model, options)), Status::InvalidArgument);
    }
    let lost =
        || -> Result<Scheduled> { Ok(scheduler.submit(alone(&model), of(), Prompt::Nothing)?) };
    assert_eq!(status(lost()), Status::NotFound);
}

#[test]
fn a_stop_lets_go() {
    let model = tiny();
    let scheduler = scheduler(&model);
    let session = session_of(&model, &some_tokens(30, 1));
    let one = scheduler.submit(session, tokens_max(0), Prompt::Nothing).unwrap();
    let other = scheduler.submit(asked_tiny(&model), tokens_max(0), Prompt::Nothing).unwrap();
    thread::scope(|threads| {
        let waiting = threads.spawn(|| one.events().last().unwrap());
        let any = threads.spawn(|| scheduler.events().last().unwrap());
        while scheduler.stats().unwrap().passes < 3 {
            thread::yield_now();
        }
        scheduler.stop();
        assert_eq!(status(waiting.join().unwrap()), Status::Cancelled);
        assert_eq!(status(any.join().unwrap()), Status::Cancelled);
    });
    assert_eq!(status(scheduler.next(None)), Status::Cancelled);
    let mut session = one.into_session().unwrap();
    session.append(&[1], Default::default()).unwrap();
    let refused = scheduler.submit(session, tokens_max(1), Prompt::Nothing).unwrap_err();
    assert_eq!(refused.error.status(), Status::Cancelled);
    other.into_session().unwrap().decode().unwrap();
}

fn asked_tiny(model: &Model) -> Session {
    session_of(model, &some_tokens(30, 2))
}

/// The orders in which `count` things can be dropped.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let places = orders(count - 1).into_iter().flat_map(|order| {
        (0..count).map(move |place| {
            let mut order = order.clone();
            order.insert(place, count - 1);
            order
        })
    });
    places.collect()
}

#[test]
fn dropped_in_every_order() {
    let model = tiny();
    let prompt = some_tokens(100, 3);
    for passes in [0, 1, 9] {
        for order in orders(4) {
            let scheduler = scheduler(&model);
            let mut things: Vec<Option<Box<dyn std::any::Any>>> = Vec::new();
            for prompt in [Prompt::Tokens(&prompt), Prompt::Nothing] {
                let session = asked_tiny(&model);
                let one = scheduler.submit(session, tokens_max(0), prompt).unwrap();
                things.push(Some(Box::new(one)));
            }
            for _ in 0..passes {
                scheduler.next(Some(Duration::from_nanos(1))).unwrap();
            }
            things.push(Some(Box::new(scheduler.clone())));
            things.push(Some(Box::new(scheduler)));
            for index in order {
                things[index] = None;
            }
            assert_eq!(model.stats().unwrap().kv_used, 0);
        }
    }
}

#[test]
fn dropped_while_others_compute() {
    let model = tiny();
    let scheduler = scheduler(&model);
    let expected = heard_alone(asked_tiny(&model), tokens_max(60), Prompt::Nothing);
    let one = scheduler.submit(asked_tiny(&model), tokens_max(60), Prompt::Nothing).unwrap();
    drop(model);
    thread::scope(|threads| {
        let computing = threads.spawn(|| {
            let mut heard = Heard::default();
            one.events().for_each(|event| heard.hear_event(event.unwrap()));
            heard
        });
        for seed in 0..40 {
            let session = Session::create(one.session().model(), ALONE).unwrap();
            let tokens = some_tokens(40, seed);
            drop(scheduler.submit(session, tokens_max(0), Prompt::Tokens(&tokens)).unwrap());
        }
        assert_eq!(computing.join().unwrap(), expected.0);
    });
    drop(scheduler); // the session keeps it
    assert_eq!(one.into_session().unwrap().digest().unwrap(), expected.1);
}

/// The panic of a trace waits for the owner of the session, whoever has computed.
#[test]
fn a_trace_that_panics() {
    let model = tiny();
    let scheduler = scheduler(&model);
    let expected = heard_alone(asked_tiny(&model), tokens_max(5), Prompt::Nothing);
    let mut session = asked_tiny(&model);
    let panics = |event: &TraceEvent| assert_ne!(event.kind, TraceKind::Append, "in a pass");
    session.set_trace(Some(Trace::new(panics))).unwrap();
    let one = scheduler.submit(session, tokens_max(5), Prompt::Nothing).unwrap();
    let mut heard = Heard::default();
    thread::scope(|threads| {
        threads.spawn(|| scheduler.events().for_each(|event| heard.hear_event(event.unwrap())));
    });
    assert_eq!(heard, expected.0);
    let session = one.into_session().unwrap();
    catch_unwind(AssertUnwindSafe(|| session.digest())).expect_err("a panic");
    assert_eq!(session.digest().unwrap(), expected.1);
}
