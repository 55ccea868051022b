//! Snapshot files: their contents, comparison, verification and size; and models to GGUF.
mod fixture;
use fixture::*;
use stasis::*;
use std::fs;

#[test]
fn what_a_file_says() {
    let model = gemma();
    let folder = Folder::new();
    let file = folder.file("a.stasis");
    let mut session = asked(&model);
    session.save(&file, SaveOptions { full_logits: true, ..Default::default() }).unwrap();
    session.decode().unwrap();
    session.save(&file, SaveOptions::default()).unwrap();
    let snapshot = Snapshot::open(&file).unwrap();
    let info = snapshot.info().unwrap();
    assert_eq!(info.digest, session.digest().unwrap());
    assert_eq!(info.model, model.info().unwrap().model);
    assert_eq!((info.commits, info.keep, info.codec), (2, Keep::Full, Codec::Raw));
    assert_eq!(info.position, session.info().unwrap().position);
    assert_eq!(info.file_bytes, fs::metadata(&file).unwrap().len());
    assert!(!info.damaged_root);
    assert_eq!(snapshot.tokens(0).unwrap(), session.tokens(0).unwrap());
    assert_eq!(snapshot.sources(0).unwrap(), session.sources(0).unwrap());
    for (number, element) in (1..).zip(Element::ALL) {
        assert_eq!(element.number(), number);
        let json = snapshot.element(element).unwrap();
        assert!(json.starts_with('{') && json.ends_with('}'), "{json}");
    }
    assert!(snapshot.element(Element::KvCache).unwrap().contains("bf16"));
    assert_eq!(status(snapshot.element(Element::Other(13))), Status::InvalidArgument);
    assert!(format!("{snapshot:?}").contains(&info.digest.to_string()));
}

#[test]
fn two_files() {
    let model = gemma();
    let folder = Folder::new();
    let (a, b) = (folder.file("a"), folder.file("b"));
    let mut session = asked(&model);
    let mut child = session.fork().unwrap();
    session.append(&[5, 6], Default::default()).unwrap();
    child.append(&[5, 7], Default::default()).unwrap();
    session.save(&a, Default::default()).unwrap();
    child.save(&b, Default::default()).unwrap();
    let (a, b) = (Snapshot::open(a).unwrap(), Snapshot::open(b).unwrap());
    let difference = a.compare(&b).unwrap().expect("a difference");
    assert_eq!(difference.element, Element::InputTokens);
    assert_eq!(difference.position, Some(session.info().unwrap().position - 1));
    assert_eq!((difference.layer, difference.head), (None, None));
    assert!(difference.message.contains("token"), "{}", difference.message);
    assert_eq!(a.compare(&a).unwrap(), None);
    let again = Snapshot::open(folder.file("a")).unwrap();
    assert_eq!(a.compare(&again).unwrap(), None);
}

#[test]
fn proof() {
    let model = gemma();
    let folder = Folder::new();
    let file = folder.file("a");
    let mut session = asked(&model);
    let options = GenerateOptions { ignore_end: true, tokens_max: 50, ..Default::default() };
    assert_eq!(session.generate(options).filter(|generated| generated.is_ok()).count(), 50);
    session.save(&file, Default::default()).unwrap();
    let snapshot = Snapshot::open(&file).unwrap();
    let report = snapshot.verify(&model, Default::default()).unwrap();
    assert_eq!(report.positions, session.info().unwrap().position);
    assert_eq!((report.drawn, report.drawn_otherwise), (50, 0));
    assert_eq!((report.element, report.position, report.part), (None, None, None));
    let audit = VerifyOptions { audit_percent: 50.0, audit_seed: 3, ..Default::default() };
    let report = snapshot.verify(&model, audit).unwrap();
    assert!(report.audit_drawn > 0 && report.audit_pages >= report.audit_drawn);
    assert_eq!(
        status(snapshot.verify(&open("recall-llama"), Default::default())),
        Status::ModelMismatch
    );
    drop(snapshot);

    // A single bit of a value, with every checksum and digest made right again.
    forge(&file, "forgery.flip_value(path, 0, 0, 7)");
    let forged = Snapshot::open(&file).unwrap();
    let error = forged.verify(&model, Default::default()).unwrap_err();
    assert_eq!(error.status(), Status::Diverged);
    let report = error.divergence().expect("where");
    assert_eq!((report.position, report.part), (Some(7), Some(Part::Values)));
    assert_eq!(report.element, Some(Element::KvCache));
    assert!(report.layer.is_some() && report.head.is_some() && !report.message.is_empty());
}

#[test]
fn room() {
    let model = gemma();
    let folder = Folder::new();
    let file = folder.file("a");
    let mut session = session_of(&model, &some_tokens(500, 1));
    session.save(&file, Default::default()).unwrap();
    session.rewind(1, true, Default::default()).unwrap();
    session.append(&some_tokens(10, 2), Default::default()).unwrap();
    session.save(&file, Default::default()).unwrap();
    let before = fs::metadata(&file).unwrap().len();
    compact(&file, SaveOptions::default()).unwrap();
    assert!(fs::metadata(&file).unwrap().len() < before / 2);
    let loaded = Session::load(&model, &file, Default::default()).unwrap();
    assert_eq!(loaded.digest().unwrap(), session.digest().unwrap());
}

#[test]
fn without_keys_and_values() {
    let model = gemma();
    let folder = Folder::new();
    let file = folder.file("a");
    let mut session = asked(&model);
    session.save(&file, SaveOptions { keep: Keep::None, ..Default::default() }).unwrap();
    let strict = LoadOptions { no_recompute: true, ..Default::default() };
    assert_eq!(status(Session::load(&model, &file, strict)), Status::Unsupported);
    let trusted = LoadOptions { trusted: true, ..Default::default() };
    let loaded = Session::load(&model, &file, trusted).unwrap();
    assert_eq!(loaded.digest().unwrap(), session.digest().unwrap());
}

#[test]
fn fewer_bits() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    let model = data("recall-llama");
    let options = || QuantizeOptions { kind: Some("BF16"), ..Default::default() };
    let report = quantize(&model, &file, options()).unwrap();
    assert_eq!(report.file_bytes, fs::metadata(&file).unwrap().len());
    assert!(report.shares.iter().any(|share| share.kind == "BF16" && share.tensors > 0));
    let quantized = Model::open(&file, Default::default()).unwrap();
    let (a, b) = (asked(&quantized), asked(&open("recall-llama")));
    assert_eq!(bits(&a.logits().unwrap()), bits(&b.logits().unwrap())); // bf16 of bf16
    assert_eq!(status(quantize(&model, &file, options())), Status::InvalidArgument);
    quantize(&model, &file, QuantizeOptions { replace: true, ..Default::default() }).unwrap();
    let unknown = QuantizeOptions { kind: Some("Q9"), ..Default::default() };
    assert_eq!(status(quantize(&model, folder.file("b.gguf"), unknown)), Status::Unsupported);
}
