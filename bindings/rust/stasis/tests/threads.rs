//! Threads: a model serves all at once, a session one at a time, and a second caller is refused.
mod fixture;
use fixture::*;
use stasis::*;
use std::ops::ControlFlow::Continue;
use std::sync::mpsc;
use std::thread;

#[test]
fn forks_run_at_the_same_time() {
    let model = gemma();
    let mut parent = asked(&model);
    let mut children: Vec<Session> = (0..4).map(|_| parent.fork().unwrap()).collect();
    let options = GenerateOptions { ignore_end: true, tokens_max: 30, ..Default::default() };
    let digests: Vec<Digest> = thread::scope(|threads| {
        let running: Vec<_> = children
            .iter_mut()
            .map(|child| {
                threads.spawn(move || {
                    child.generate_with(options, |_| Continue(())).unwrap();
                    child.digest().unwrap()
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    parent.generate_with(options, |_| Continue(())).unwrap();
    assert_eq!(digests, [parent.digest().unwrap(); 4]);
    let moved = thread::spawn(move || parent.digest().unwrap()); // and is dropped in that thread
    assert_eq!(moved.join().unwrap(), digests[0]);
}

/// A reader that waits inside the call, so that another thread surely comes second.
#[test]
fn a_second_caller_is_told() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(3, 1));
    let (to, inside) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    // A fork is reported inside a call on `&self`.
    session
        .set_trace(Some(Trace::new(move |event| {
            if event.kind == TraceKind::Fork {
                to.send(()).unwrap();
                wait.recv().unwrap();
            }
        })))
        .unwrap();
    let session = &session;
    thread::scope(|threads| {
        let first = threads.spawn(move || session.fork().unwrap().digest().unwrap());
        inside.recv().unwrap();
        assert_eq!(status(session.digest()), Status::Busy);
        assert_eq!(status(session.info()), Status::Busy);
        assert_eq!(status(session.fork()), Status::Busy);
        assert!(format!("{session:?}").contains("BUSY"));
        go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap(), session.digest().unwrap());
    });
}

/// Reads from many threads: each answer is the right one or BUSY.
#[test]
fn many_readers() {
    let model = gemma();
    let session = asked(&model);
    let digest = session.digest().unwrap();
    let logits = bits(&session.logits().unwrap());
    let folder = Folder::new();
    session.fork().unwrap().save(folder.file("a"), Default::default()).unwrap();
    let snapshot = Snapshot::open(folder.file("a")).unwrap();
    let answered: usize = thread::scope(|threads| {
        let read = || {
            let mut answered = 0;
            for _ in 0..200 {
                match (session.digest(), session.logits(), snapshot.info()) {
                    (Ok(own), Ok(row), Ok(info)) => {
                        assert_eq!(
                            (own, bits(&row), info.digest),
                            (digest, logits.clone(), digest)
                        );
                        answered += 1;
                    }
                    (own, row, info) => {
                        let busy = |error: Error| assert_eq!(error.status(), Status::Busy);
                        own.map(drop).unwrap_or_else(busy);
                        row.map(drop).unwrap_or_else(busy);
                        info.map(drop).unwrap_or_else(busy);
                    }
                }
            }
            answered
        };
        let running: Vec<_> = (0..4).map(|_| threads.spawn(read)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(answered > 0);
}

/// A panic of a trace is resumed in the thread whose call it interrupted, not in another one.
#[test]
fn a_panic_stays_in_its_thread() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(3, 1));
    session
        .set_trace(Some(Trace::new(|event| {
            if event.kind == TraceKind::Fork {
                panic!("in fork");
            }
        })))
        .unwrap();
    let session = &session;
    thread::scope(|threads| {
        // The one that comes by may be in the way: BUSY is no fork, and no panic either.
        let first = threads.spawn(move || {
            while matches!(session.fork(), Err(error) if error.status() == Status::Busy) {}
        });
        while !first.is_finished() {
            let _ = session.digest();
        }
        assert!(first.join().is_err());
    });
    session.digest().unwrap();
}
