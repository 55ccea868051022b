//! The iterator yields what the closure is called with, event by event, and leaves the session as
//! it does; stopped early, it leaves just what it yielded.
mod fixture;
use fixture::*;
use stasis::*;
use std::ops::ControlFlow;

/// Both ways from the same state: the same events and the same session.
fn both(from: &Session, options: GenerateOptions<'_>) -> (Vec<Generated>, Stop) {
    let (mut told, mut pulled) = (from.fork().unwrap(), from.fork().unwrap());
    let mut events = Vec::new();
    let result = told
        .generate_with(options, |generated| {
            events.push(generated);
            ControlFlow::Continue(())
        })
        .unwrap();
    let mut generation = pulled.generate(options);
    let items: Vec<Generated> = generation.by_ref().map(Result::unwrap).collect();
    assert_eq!(items, events, "{options:?}");
    assert_eq!(generation.result(), result);
    drop(generation);
    if options.log_probabilities == 0 {
        text_stream_says_the_same(from.model(), options, &events, result.stop);
    }
    assert_eq!(pulled.digest().unwrap(), told.digest().unwrap());
    assert_eq!(result.begin, from.info().unwrap().position);
    assert_eq!(result.begin + result.count, told.info().unwrap().position);
    (events, result.stop)
}

/// Each token makes the text of its event, and the last one meets the stop.
fn text_stream_says_the_same(
    model: &Model,
    options: GenerateOptions<'_>,
    events: &[Generated],
    stop: Stop,
) {
    let tokens = events.iter().filter(|event| !event.last);
    let count = tokens.clone().count() as u64;
    // A full session ends a generation, and has no stream.
    let options = GenerateOptions { tokens_max: options.tokens_max.max(count), ..options };
    let mut text = TextStream::new(model, options).unwrap();
    for (done, event) in tokens.enumerate() {
        let piece = text.push(event.token).unwrap();
        assert_eq!(piece.text, event.text);
        assert_eq!(piece.stop, (done as u64 + 1 == count).then_some(stop));
    }
    let held = events.last().filter(|event| event.last).map_or("", |event| &event.text);
    assert_eq!(text.finish().unwrap().text, held);
    assert_eq!(status(text.push(Token::MAX)), Status::InvalidArgument);
}

fn text_of(events: &[Generated]) -> String {
    events.iter().map(|event| event.text.as_str()).collect()
}

#[test]
fn a_reply() {
    let model = gemma();
    let (events, stop) = both(&asked(&model), GenerateOptions::default());
    assert_eq!(text_of(&events), "k is 5.");
    assert_eq!(stop, Stop::EndToken);
}

#[test]
fn every_way_to_end() {
    let model = gemma();
    let session = asked(&model);
    let plain = GenerateOptions { ignore_end: true, tokens_max: 30, ..Default::default() };
    let (events, stop) = both(&session, plain);
    assert_eq!((events.iter().filter(|event| !event.last).count(), stop), (30, Stop::Length));
    let stop_tokens = [events[2].token];
    let (events, stop) = both(&session, GenerateOptions { stop_tokens: &stop_tokens, ..plain });
    assert_eq!((events.last().unwrap().token, stop), (stop_tokens[0], Stop::EndToken));
    let likely = GenerateOptions { log_probabilities: 3, ..plain };
    let (events, _) = both(&session, likely);
    assert!(events.iter().all(|event| event.best.len() == if event.last { 0 } else { 3 }));
    assert_eq!(events[0].best, session.top(3).unwrap());
    let mut full = Session::create(&model, SessionOptions { capacity: 9, ..ALONE }).unwrap();
    full.append(&some_tokens(5, 1), RunOptions::default()).unwrap();
    let (events, stop) = both(&full, GenerateOptions { ignore_end: true, ..Default::default() });
    assert_eq!((events.iter().filter(|event| !event.last).count(), stop), (4, Stop::Length));
}

/// Every short piece of what is said as a stop string, alone and beside another, so that some are
/// found at once, some across tokens, some begin and do not come.
#[test]
fn stop_strings() {
    let model = gemma();
    let mut session = asked(&model);
    let hot = Sampling { temperature: 3.0, seed: 7, ..Default::default() };
    session.set_sampling(&hot).unwrap();
    let plain = GenerateOptions { ignore_end: true, tokens_max: 10, ..Default::default() };
    let (events, _) = both(&session, plain);
    let text: Vec<char> = text_of(&events).chars().collect();
    let (mut stopped, mut held) = (0, 0);
    for begin in 0..text.len() {
        for length in 1..=3.min(text.len() - begin) {
            let piece: String = text[begin..begin + length].iter().collect();
            let never = format!("{piece}\u{1}");
            for strings in [&[piece.as_str()][..], &[never.as_str()], &[&never, &piece]] {
                let (events, stop) =
                    both(&session, GenerateOptions { stop_strings: strings, ..plain });
                stopped += u32::from(stop == Stop::StopString);
                held += u32::from(events.last().map_or(false, |event| event.last));
                // U+FFFD stands for bytes that are something else.
                if strings == [piece.as_str()] && !piece.contains('\u{FFFD}') {
                    assert_eq!(stop, Stop::StopString);
                    assert!(!text_of(&events).contains(&piece));
                }
            }
        }
    }
    assert!(stopped > 30 && held > 0, "{stopped} stopped, {held} held back to the end");
}

/// Random bytes from a hot model with a vocabulary of bytes: characters that come in pieces, and
/// pieces that become none.
#[test]
fn characters_across_tokens() {
    let model = gemma();
    let bytes: Vec<Token> = (0..model.info().unwrap().vocabulary)
        .filter(|token| {
            let middle = Detokenize { middle: true, ..Default::default() };
            model.detokenize(&[*token], middle).unwrap().iter().any(|byte| *byte >= 0x80)
        })
        .collect();
    assert!(bytes.len() > 100, "{} tokens are no ASCII", bytes.len());
    let mut session = asked(&model);
    let bias = bytes.iter().map(|token| (*token, 100.0)).collect();
    let (mut replaced, mut empty) = (0, 0);
    for seed in 0..12 {
        let wild =
            Sampling { temperature: 50.0, seed, bias: Clone::clone(&bias), ..Default::default() };
        session.set_sampling(&wild).unwrap();
        let options = GenerateOptions { ignore_end: true, tokens_max: 40, ..Default::default() };
        let (events, _) = both(&session, options);
        replaced += text_of(&events).matches('\u{FFFD}').count();
        empty += events.iter().filter(|event| event.text.is_empty()).count();
    }
    assert!(replaced > 0 && empty > 0, "{replaced} replaced, {empty} held back");
}

#[test]
fn stopped_early() {
    let model = gemma();
    let mut session = asked(&model);
    let mut same = session.fork().unwrap();
    let begin = session.info().unwrap().position;
    let options = GenerateOptions { ignore_end: true, ..Default::default() };
    let first: Vec<Token> =
        session.generate(options).take(3).map(|generated| generated.unwrap().token).collect();
    assert_eq!(session.tokens(begin).unwrap(), first);
    for token in &first {
        assert_eq!(same.decode().unwrap(), *token);
    }
    assert_eq!(session.digest().unwrap(), same.digest().unwrap());

    let mut count = 0;
    let result = session.generate_with(options, |_| {
        count += 1;
        if count == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let result = result.unwrap();
    assert_eq!((result.stop, result.count, count), (Stop::Callback, 2, 2));
    assert_eq!(session.info().unwrap().position, begin + 5);
    drop(session.generate(options)); // never asked: nothing is drawn
    assert_eq!(session.info().unwrap().position, begin + 5);
}

#[test]
fn ends_once_and_for_all() {
    let model = gemma();
    let mut session = asked(&model);
    let mut generation = session.generate(GenerateOptions::default());
    assert!(generation.by_ref().count() > 0);
    assert!(generation.next().is_none() && generation.next().is_none());
    drop(generation);
    let refused = GenerateOptions { stop_strings: &[""], ..Default::default() };
    let mut generation = session.generate(refused);
    assert_eq!(status(generation.next().unwrap()), Status::InvalidArgument);
    assert!(generation.next().is_none());
    drop(generation);
    let zero = GenerateOptions { stop_strings: &["a\0b"], ..Default::default() };
    assert_eq!(status(session.generate(zero).next().unwrap()), Status::InvalidArgument);
    let mut empty = alone(&model);
    assert_eq!(status(empty.generate(Default::default()).next().unwrap()), Status::NotFound);
}

#[test]
fn cancelled_between_tokens() {
    let model = gemma();
    let cancel = Cancel::new().unwrap();
    let mut session = asked(&model);
    let begin = session.info().unwrap().position;
    let options = GenerateOptions { ignore_end: true, cancel: Some(&cancel), ..Default::default() };
    let mut given = 0;
    let mut generation = session.generate(options);
    let error = loop {
        match generation.next().expect("no end") {
            Ok(_) => given += 1,
            Err(error) => break error,
        }
        if given == 4 {
            cancel.request();
        }
    };
    assert_eq!((error.status(), given), (Status::Cancelled, 4));
    assert!(generation.next().is_none());
    drop(generation);
    assert_eq!(session.info().unwrap().position, begin + 4);
    assert_eq!(status(session.generate_with(options, |_| unreachable!())), Status::Cancelled);
    cancel.reset();
    let mut told = 0;
    let result = session.generate_with(options, |_| {
        told += 1;
        cancel.request();
        ControlFlow::Continue(())
    });
    assert_eq!((status(result), told), (Status::Cancelled, 1));
    assert_eq!(session.info().unwrap().position, begin + 5);
}

/// Between two items the session has what was yielded, even if a drafter has computed more.
#[test]
fn the_session_between_two_items() {
    let model = gemma();
    let start = asked(&model);
    let options = GenerateOptions { ignore_end: true, tokens_max: 9, ..Default::default() };
    for draft in [Draft::Off, Draft::Model { model: &model, tokens_min: 4, tokens_max: 4 }] {
        let (mut session, mut plain) = (start.fork().unwrap(), start.fork().unwrap());
        session.set_draft(draft).unwrap();
        let mut generation = session.generate(options);
        assert_eq!(generation.result().stop, Stop::Callback);
        while let Some(generated) = generation.next() {
            assert_eq!(generated.unwrap().token, plain.decode().unwrap());
            assert_eq!(generation.session().digest().unwrap(), plain.digest().unwrap());
            let position = generation.session().info().unwrap().position;
            assert_eq!(position, plain.info().unwrap().position);
            let mut child = generation.session().fork().unwrap();
            assert_eq!(child.decode().unwrap(), plain.fork().unwrap().decode().unwrap());
        }
        assert_eq!((generation.result().stop, generation.result().count), (Stop::Length, 9));
    }
}

/// Other threads read it while a token is computed, and get what a session has that was given the
/// same tokens alone.
#[test]
fn a_session_is_read_while_it_generates() {
    let model = gemma();
    let start = asked(&model);
    let options = GenerateOptions { ignore_end: true, tokens_max: 30, ..Default::default() };
    for draft in [Draft::Off, Draft::Model { model: &model, tokens_min: 4, tokens_max: 4 }] {
        let (mut session, mut plain) = (start.fork().unwrap(), start.fork().unwrap());
        let begin = plain.info().unwrap().position;
        let after: Vec<Digest> = std::iter::once(plain.digest().unwrap())
            .chain((0..30).map(|_| plain.decode().and_then(|_| plain.digest()).unwrap()))
            .collect();
        session.set_draft(draft).unwrap();
        let mut generation = session.generate(options);
        let watched = generation.session();
        let over = std::sync::atomic::AtomicBool::new(false);
        let ordering = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    let mut last = 0;
                    while !over.load(ordering) {
                        let digest = watched.digest().unwrap();
                        let at = after.iter().position(|each| *each == digest).unwrap();
                        assert!(at >= last);
                        last = at;
                        assert!(watched.info().unwrap().position >= begin + at as u64);
                    }
                });
            }
            for generated in generation.by_ref() {
                let at = (generated.unwrap().position + 1 - begin) as usize;
                assert_eq!(watched.digest().unwrap(), after[at]);
            }
            over.store(true, ordering);
        });
        drop(generation);
        assert_eq!(session.digest().unwrap(), after[30]);
    }
}

#[test]
fn text_streams_refuse_what_draws() {
    let model = gemma();
    let cancel = Cancel::new().unwrap();
    let with_cancel = GenerateOptions { cancel: Some(&cancel), ..Default::default() };
    assert_eq!(status(TextStream::new(&model, with_cancel)), Status::InvalidArgument);
    let likely = GenerateOptions { log_probabilities: 1, ..Default::default() };
    assert_eq!(status(TextStream::new(&model, likely)), Status::InvalidArgument);
    let stops = GenerateOptions { stop_strings: &["a"], ..Default::default() };
    assert_eq!(status(TextStream::new(&tiny(), stops)), Status::Unsupported);
    let empty = GenerateOptions { stop_strings: &[""], ..Default::default() };
    assert_eq!(status(TextStream::new(&model, empty)), Status::InvalidArgument);
    let zero = GenerateOptions { stop_strings: &["a\0"], ..Default::default() };
    assert_eq!(status(TextStream::new(&model, zero)), Status::InvalidArgument);
}

#[test]
fn drafts_change_nothing() {
    let model = gemma();
    let plain = asked(&model);
    let options = GenerateOptions { ignore_end: true, tokens_max: 60, ..Default::default() };
    let (events, _) = both(&plain, options);
    let drafts = [
        Draft::Off,
        Draft::Lookup { tokens_min: 0, tokens_max: 0 },
        Draft::Model { model: &model, tokens_min: 4, tokens_max: 4 },
    ];
    for draft in drafts {
        let mut session = plain.fork().unwrap();
        session.set_draft(draft).unwrap();
        let mut pulled = session.fork().unwrap(); // which drafts as well
        let mut told = Vec::new();
        let result = session.generate_with(options, |generated| {
            told.push(generated);
            ControlFlow::Continue(())
        });
        let result = result.unwrap();
        assert_eq!(told, events, "{draft:?}");
        let mut generation = pulled.generate(options);
        assert!(generation.by_ref().map(Result::unwrap).eq(events.iter().cloned()));
        assert_eq!(generation.result(), result);
        if let Draft::Model { .. } = draft {
            assert!(result.accepted > 0 && result.passes < result.count, "{result:?}");
        }
    }
    let mut session = plain.fork().unwrap();
    let wrong = Draft::Lookup { tokens_min: 9, tokens_max: 3 };
    assert_eq!(status(session.set_draft(wrong)), Status::InvalidArgument);
    let other = tiny();
    let other = Draft::Model { model: &other, tokens_min: 0, tokens_max: 0 };
    assert_eq!(status(session.set_draft(other)), Status::ModelMismatch);
}
