//! Closures: they are called, they stop, they cancel. A panic is resumed in the caller, and every
//! object is as after a call that was stopped.
mod fixture;
use fixture::*;
use stasis::*;
use std::ops::ControlFlow::{Break, Continue};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc;

/// The message of a panic.
fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).map(drop).expect_err("a panic");
    payload.downcast_ref::<&str>().map_or_else(String::new, |text| text.to_string())
}

#[test]
fn progress_is_heard_and_stops() {
    let model = tiny();
    let tokens = some_tokens(300, 1);
    let mut session = alone(&model);
    let mut heard = Vec::new();
    let mut hear = |done, total| {
        heard.push((done, total));
        Continue(())
    };
    let options = RunOptions { chunk: 64, progress: Some(&mut hear), ..Default::default() };
    session.append(&tokens, options).unwrap();
    assert_eq!(heard.last(), Some(&(300, 300)));
    assert!(heard.len() > 2 && heard.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{heard:?}");
    let before = session.digest().unwrap();
    let mut stop = |done, _| if done > 100 { Break(()) } else { Continue(()) };
    let options = RunOptions { chunk: 64, progress: Some(&mut stop), ..Default::default() };
    assert_eq!(status(session.append(&some_tokens(300, 2), options)), Status::Stopped);
    assert_eq!(session.digest().unwrap(), before);
}

#[test]
fn logits_of_every_position() {
    let model = tiny();
    let tokens = some_tokens(20, 1);
    let mut rows = Vec::new();
    let mut keep = |position, row: &[f32]| {
        rows.push((position, bits(row)));
        Continue(())
    };
    let mut session = alone(&model);
    let options = RunOptions { logits: Some(&mut keep), ..Default::default() };
    session.append(&tokens, options).unwrap();
    for (index, (position, row)) in rows.iter().enumerate() {
        assert_eq!(*position, index as u64);
        let short = session_of(&model, &tokens[..=index]);
        assert_eq!(*row, bits(&short.logits().unwrap()));
    }
    assert_eq!(rows.len(), 20);
    let mut stop = |_, _: &[f32]| Break(());
    let options = RunOptions { logits: Some(&mut stop), ..Default::default() };
    assert_eq!(status(session.append(&[1], options)), Status::Stopped);
}

/// From another thread, while an append is under way.
#[test]
fn cancelled_in_the_middle() {
    let model = gemma();
    let mut session = session_of(&model, &some_tokens(10, 1));
    let before = session.digest().unwrap();
    let cancel = Cancel::new().unwrap();
    let ((begun, wait), (requested, seen)) = (mpsc::channel(), mpsc::channel());
    let other = cancel.clone();
    let canceller = std::thread::spawn(move || {
        wait.recv().unwrap();
        other.request();
        requested.send(()).unwrap();
    });
    let mut waited = false;
    let mut under_way = |done, _| {
        if done >= 64 && !waited {
            begun.send(()).unwrap();
            seen.recv().unwrap();
            waited = true;
        }
        Continue(())
    };
    let tokens = some_tokens(1000, 2).repeat(2);
    let options = RunOptions {
        chunk: 16,
        cancel: Some(&cancel),
        progress: Some(&mut under_way),
        ..Default::default()
    };
    assert_eq!(status(session.append(&tokens, options)), Status::Cancelled);
    canceller.join().unwrap();
    let (done, total) = cancel.progress();
    assert!((64..2000).contains(&done) && total == 2000, "{done} of {total}");
    assert_eq!(session.digest().unwrap(), before);
    let run = || RunOptions { cancel: Some(&cancel), ..Default::default() };
    assert_eq!(status(session.append(&[1], run())), Status::Cancelled); // it is sticky
    assert_eq!(status(step(&mut [StepItem::decode(&mut session)], run())), Status::Cancelled);
    cancel.reset();
    session.append(&[1], run()).unwrap();
    cancel.request();
    let options = ModelOptions { cancel: Some(&cancel), ..Default::default() };
    assert_eq!(status(Model::open(data("recall-llama"), options)), Status::Cancelled);
}

#[test]
fn panics_come_through() {
    let model = gemma();
    let mut session = asked(&model);
    let before = session.digest().unwrap();
    let mut panics = |_, _| panic!("in progress");
    let options = RunOptions { progress: Some(&mut panics), ..Default::default() };
    assert_eq!(panic_of(|| session.append(&[1], options)), "in progress");
    let mut panics = |_, _: &[f32]| panic!("in logits");
    let options = RunOptions { logits: Some(&mut panics), ..Default::default() };
    assert_eq!(panic_of(|| session.append(&[1], options)), "in logits");
    assert_eq!(session.digest().unwrap(), before);
    let position = session.info().unwrap().position;
    let generated = || session.generate_with(Default::default(), |_| panic!("in generation"));
    assert_eq!(panic_of(generated), "in generation");
    assert_eq!(session.info().unwrap().position, position + 1); // the token stays
    let mut panics = |_, _| panic!("in open");
    let options = ModelOptions { progress: Some(&mut panics), ..Default::default() };
    assert_eq!(panic_of(|| Model::open(data("recall-llama"), options)), "in open");
    let folder = Folder::new();
    let mut panics = |_, _| panic!("in save");
    let options = SaveOptions { progress: Some(&mut panics), ..Default::default() };
    assert_eq!(panic_of(|| session.save(folder.file("a"), options)), "in save");
    assert!(!folder.file("a").exists());
    session.save(folder.file("a"), Default::default()).unwrap();
    let mut panics = |_, _| panic!("in load");
    let options = LoadOptions { progress: Some(&mut panics), ..Default::default() };
    assert_eq!(panic_of(|| Session::load(&model, folder.file("a"), options)), "in load");
    let snapshot = Snapshot::open(folder.file("a")).unwrap();
    let mut panics = |_, _| panic!("in verify");
    let options = VerifyOptions { progress: Some(&mut panics), ..Default::default() };
    assert_eq!(panic_of(|| snapshot.verify(&model, options)), "in verify");
    snapshot.verify(&model, Default::default()).unwrap();
    let mut panics = |_, _| panic!("in quantize");
    let options = QuantizeOptions { progress: Some(&mut panics), ..Default::default() };
    let quantized = || quantize(data("recall-llama"), folder.file("a.gguf"), options);
    assert_eq!(panic_of(quantized), "in quantize");
}

/// The reported pages are those that the session has.
#[test]
fn a_trace_is_told() {
    let model = tiny();
    let mut session = alone(&model);
    let (to, events) = mpsc::channel();
    session.set_trace(Some(Trace::new(move |event| to.send(*event).unwrap_or_default()))).unwrap();
    session.append(&some_tokens(130, 1), Default::default()).unwrap();
    let child = session.fork().unwrap();
    session.rewind(3, false, Default::default()).unwrap();
    let told: Vec<TraceEvent> = events.try_iter().collect();
    let count = |kind| told.iter().filter(|event| event.kind == kind).count();
    let pages = count(TraceKind::Taken) as u64 - count(TraceKind::Released) as u64;
    let info = session.info().unwrap();
    assert_eq!(pages, info.pages_own + info.pages_shared, "{told:?}");
    assert_eq!(count(TraceKind::Filled), 2);
    let operation = |kind| told.iter().find(|event| event.kind == kind).unwrap().positions();
    assert_eq!(operation(TraceKind::Append), 0..130);
    assert_eq!(operation(TraceKind::Fork), 0..130);
    assert_eq!(operation(TraceKind::Rewind), 3..130);
    drop(child);
    session.set_trace(None).unwrap();
    // The closure went with the trace, and the sender with the closure.
    assert_eq!(events.recv(), Err(mpsc::RecvError));
}

#[test]
fn a_trace_of_a_loaded_session() {
    let model = tiny();
    let folder = Folder::new();
    let mut saved = session_of(&model, &some_tokens(70, 1));
    saved.save(folder.file("a"), Default::default()).unwrap();
    let (to, events) = mpsc::channel();
    let trace = Some(Trace::new(move |event| to.send(*event).unwrap_or_default()));
    let options = LoadOptions { trace, ..Default::default() };
    let session = Session::load(&model, folder.file("a"), options).unwrap();
    let load = events.try_iter().find(|event| event.kind == TraceKind::Load).unwrap();
    assert_eq!(load.digest, session.digest().unwrap());
    drop(session);
    assert_eq!(events.recv(), Err(mpsc::RecvError));
}

#[test]
fn a_trace_that_panics() {
    let model = tiny();
    let mut session = alone(&model);
    let (to, events) = mpsc::channel();
    let trace = Trace::new(move |event| {
        to.send(*event).unwrap();
        panic!("in trace");
    });
    session.set_trace(Some(trace)).unwrap();
    // It cannot end a call: the tokens are in the log when the panic is resumed, once.
    assert_eq!(panic_of(|| session.append(&[1, 2, 3], Default::default())), "in trace");
    assert_eq!(session.info().unwrap().position, 3);
    session.append(&[4], Default::default()).unwrap();
    assert_eq!(events.try_iter().count(), 1);
    assert_eq!(session.digest().unwrap(), session_of(&model, &[1, 2, 3, 4]).digest().unwrap());
    let mut other = session_of(&model, &[5]);
    other
        .set_trace(Some(Trace::new(|event| {
            if event.kind == TraceKind::Append {
                panic!("in step");
            }
        })))
        .unwrap();
    let mut items = [StepItem::decode(&mut session), StepItem::decode(&mut other)];
    assert_eq!(panic_of(|| step(&mut items, Default::default())), "in step");
    assert!(items.iter().all(|item| matches!(item.outcome(), Ok(Some(_)))));
}
