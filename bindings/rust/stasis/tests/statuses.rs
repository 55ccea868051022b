//! Every status that a host can be made to see, as an error that says so; and the session is as it
//! was.
mod fixture;
use fixture::*;
use stasis::*;
use std::fs;

#[test]
fn arguments() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(5, 1));
    let before = session.digest().unwrap();
    let error = session.append(&[1, 2, 70_000], RunOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("70000"), "{error}");
    assert!(error.to_string().starts_with("INVALID_ARGUMENT: "), "{error}");
    assert!(std::error::Error::source(&error).is_none() && error.io().is_none());
    assert_eq!(status(session.top(1_000_000)), Status::InvalidArgument);
    assert_eq!(status(session.top(usize::MAX)), Status::InvalidArgument);
    assert_eq!(status(session.evict(3..9)), Status::InvalidArgument);
    assert_eq!(status(session.rewind(6, false, Default::default())), Status::InvalidArgument);
    let hot = Sampling { temperature: -1.0, ..Default::default() };
    assert!(session.set_sampling(&hot).unwrap_err().message().contains("temperature"));
    assert_eq!(status(Model::open("a\0b", Default::default())), Status::InvalidArgument);
    let zero = session.append_message("us\0er", "", Reply::None, Default::default());
    assert_eq!(status(zero), Status::InvalidArgument);
    assert_eq!(session.digest().unwrap(), before);
}

#[test]
fn what_is_not_there() {
    assert_eq!(status(Model::open("/nowhere", Default::default())), Status::NotFound);
    let model = tiny();
    let mut empty = alone(&model);
    assert_eq!(status(empty.logits()), Status::NotFound);
    assert_eq!(status(empty.sample()), Status::NotFound);
    assert_eq!(status(empty.decode()), Status::NotFound);
    assert_eq!(status(Snapshot::open("/nowhere")), Status::NotFound);
    assert_eq!(status(Session::load(&model, "/nowhere", Default::default())), Status::NotFound);
    assert_eq!(status(compact("/nowhere", Default::default())), Status::NotFound);
}

#[test]
fn what_cannot_be_done() {
    let kernels = ModelOptions { kernels: Some("quantum"), ..Default::default() };
    assert_eq!(status(Model::open(data("recall-llama"), kernels)), Status::Unsupported);
    let device = ModelOptions { device: Some("cuda"), ..Default::default() };
    assert_eq!(status(Model::open(data("recall-llama"), device)), Status::Device);
    let model = tiny();
    assert_eq!(status(model.tokenize("text", Default::default())), Status::Unsupported);
    assert_eq!(status(alone(&model).attention(Attention::Total)), Status::Unsupported);
    let message = Message { role: "user", text: "text" };
    assert_eq!(status(model.render(&[message], Reply::None)), Status::Unsupported);
}

#[test]
fn room() {
    let model = tiny();
    let options = SessionOptions { capacity: 4, ..ALONE };
    let mut session = Session::create(&model, options).unwrap();
    assert_eq!(status(session.append(&[1; 5], Default::default())), Status::Full);
    assert_eq!(session.info().unwrap().position, 0);
    let large = SessionOptions { capacity: u64::MAX, ..ALONE };
    assert_eq!(status(Session::create(&model, large)), Status::InvalidArgument);

    let page = session_of(&model, &[1]).info().unwrap().kv_bytes;
    let options = ModelOptions { kv_budget_bytes: 2 * page, threads: 1, ..Default::default() };
    let model = Model::open(data("zoo/llama-gqa-untied"), options).unwrap();
    let first = session_of(&model, &[1; 65]);
    let mut second = alone(&model);
    assert_eq!(status(second.append(&[1], Default::default())), Status::PoolExhausted);
    drop(first);
    second.append(&[1], Default::default()).unwrap();
}

#[test]
fn damaged_files() {
    let folder = Folder::new();
    let file = folder.file("a.stasis");
    let model = tiny();
    session_of(&model, &some_tokens(70, 1)).save(&file, Default::default()).unwrap();
    let other = gemma();
    let error = Session::load(&other, &file, Default::default()).unwrap_err();
    assert_eq!(error.status(), Status::ModelMismatch);
    let none = LoadOptions {
        session: Some(SessionOptions { capacity: 50, ..ALONE }),
        ..Default::default()
    };
    assert_eq!(status(Session::load(&model, &file, none)), Status::Full);

    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&file, &damaged).unwrap();
    assert_eq!(status(Session::load(&model, &file, Default::default())), Status::Corrupt);
    assert_eq!(status(Snapshot::read(&whole[..middle])), Status::Corrupt);
    fs::write(&file, b"a letter").unwrap();
    let mut session = session_of(&model, &[1]);
    assert_eq!(status(session.save(&file, Default::default())), Status::InvalidArgument);
    session.save(&file, SaveOptions { replace: true, ..Default::default() }).unwrap();
    assert_eq!(status(session.save("/nowhere/a", Default::default())), Status::Io);
}

/// The second of two sessions that continue one file is refused.
#[test]
fn conflicts() {
    let folder = Folder::new();
    let file = folder.file("a.stasis");
    let model = tiny();
    let only = || SaveOptions { if_match: true, ..Default::default() };
    session_of(&model, &some_tokens(5, 1)).save(&file, only()).unwrap();
    let mut first = Session::load(&model, &file, Default::default()).unwrap();
    let mut second = Session::load(&model, &file, Default::default()).unwrap();
    for session in [&mut first, &mut second] {
        session.append(&[1], Default::default()).unwrap();
    }
    first.append(&[2], Default::default()).unwrap();
    first.save(&file, only()).unwrap();
    assert_eq!(status(second.save(&file, only())), Status::Conflict);
    first.save(&file, only()).unwrap();
    second.save(&file, Default::default()).unwrap();
}

/// A file of a format from tomorrow.
#[test]
fn versions() {
    let folder = Folder::new();
    let file = folder.file("a.stasis");
    fs::copy(data("golden/v1/first.stasis"), &file).unwrap();
    let model = open("recall-llama");
    assert!(Session::load(&model, &file, Default::default()).is_ok());
    // FORMAT.md: the version follows the magic.
    let change = "path.write_bytes(reseal.Snapshot(path.read_bytes()).changed(8, bytes([99])))";
    forge(&file, change);
    assert_eq!(status(Session::load(&model, &file, Default::default())), Status::Version);
    assert_eq!(status(Snapshot::open(&file)), Status::Version);
}

/// A weight that is no number is found when the model is opened.
#[test]
fn numbers_that_are_none() {
    let folder = Folder::new();
    let from = data("zoo/llama-gqa-untied");
    fs::copy(from.join("config.json"), folder.file("config.json")).unwrap();
    let mut weights = fs::read(from.join("model.safetensors")).unwrap();
    let end = weights.len();
    weights[end - 2..].copy_from_slice(&[0xC0, 0x7F]); // a bf16 NaN
    fs::write(folder.file("model.safetensors"), weights).unwrap();
    let opened = Model::open(folder.file(""), Default::default());
    assert_eq!(status(opened), Status::Nonfinite);
}

#[test]
fn numbers_of_statuses() {
    assert_eq!(Status::InvalidArgument.code(), 1);
    assert_eq!(Status::BufferTooSmall.code(), 18);
    assert_eq!(Status::Conflict.code(), 19);
    assert_eq!(Status::Other(99).code(), 99);
    assert_eq!(Status::PoolExhausted.to_string(), "POOL_EXHAUSTED");
    assert_eq!(Status::Other(99).to_string(), "UNKNOWN");
}
