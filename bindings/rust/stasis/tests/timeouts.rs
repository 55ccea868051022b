//! The time of calls. Closures wait until it is over, so that nothing depends on the machine.
mod fixture;
use fixture::*;
use stasis::*;
use std::ops::ControlFlow;
use std::time::Duration;

const TIME: Option<Duration> = Some(Duration::from_millis(5));

fn wait(_: u64, _: u64) -> ControlFlow<()> {
    std::thread::sleep(Duration::from_millis(6));
    ControlFlow::Continue(())
}

#[test]
fn calls_end_and_leave_everything_as_before() {
    let model = gemma();
    let mut session = session_of(&model, &some_tokens(300, 1));
    let before = session.digest().unwrap();
    let more = some_tokens(300, 2);
    let timed = RunOptions { timeout: TIME, progress: Some(&mut wait), ..Default::default() };
    assert_eq!(status(session.append(&more, timed)), Status::Timeout);
    assert_eq!(session.digest().unwrap(), before);

    let folder = Folder::new();
    let path = folder.file("a");
    let timed = SaveOptions { timeout: TIME, progress: Some(&mut wait), ..Default::default() };
    assert_eq!(status(session.save(&path, timed)), Status::Timeout);
    assert!(!path.exists());
    let whole = SaveOptions { timeout: Some(Duration::MAX), ..Default::default() };
    session.save(&path, whole).unwrap();
    let timed = LoadOptions { timeout: TIME, progress: Some(&mut wait), ..Default::default() };
    let loaded = Session::load(&model, &path, timed).map(drop);
    assert_eq!(status(loaded), Status::Timeout);
    let snapshot = Snapshot::open(&path).unwrap();
    let timed = VerifyOptions { timeout: TIME, progress: Some(&mut wait), ..Default::default() };
    assert_eq!(status(snapshot.verify(&model, timed)), Status::Timeout);
    let timed = ModelOptions { timeout: TIME, progress: Some(&mut wait), ..Default::default() };
    let opened = Model::open(data("recall-gemma3"), timed).map(drop);
    assert_eq!(status(opened), Status::Timeout);
}

#[test]
fn a_generation_keeps_its_tokens_and_is_over() {
    let model = gemma();
    let mut session = session_of(&model, &some_tokens(40, 1));
    let options = GenerateOptions {
        tokens_max: 1000,
        ignore_end: true,
        timeout: Some(Duration::from_millis(2000)),
        ..Default::default()
    };
    let mut tokens = 0;
    let mut ended = None;
    for generated in session.generate(options) {
        match generated {
            Ok(generated) => tokens += u64::from(!generated.last),
            Err(error) => ended = Some(error.status()),
        }
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!(ended, Some(Status::Timeout));
    assert!((1..=3).contains(&tokens), "{tokens}");
    assert_eq!(session.info().unwrap().position, 40 + tokens);
    let refused = session.generate_with(options, |_| {
        std::thread::sleep(Duration::from_millis(2010));
        ControlFlow::Continue(())
    });
    assert_eq!(status(refused), Status::Timeout);
    assert_eq!(session.info().unwrap().position, 41 + tokens);
}
