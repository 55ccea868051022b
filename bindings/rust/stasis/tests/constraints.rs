//! Constraints: replies are texts of them, in files too; masks of the host's own; refusals.
mod fixture;
use fixture::*;
use stasis::*;

fn reply(session: &mut Session) -> (String, Stop) {
    let options = GenerateOptions { tokens_max: 100, ..Default::default() };
    let mut generation = session.generate(options);
    let text = generation.by_ref().map(|event| event.unwrap().text).collect();
    (text, generation.result().stop)
}

fn fits(text: &str) -> bool {
    let rest = text.strip_prefix("yes, ").or(text.strip_prefix("no, "));
    let Some(word) = rest.and_then(|rest| rest.strip_suffix(['.', '!'])) else { return false };
    (2..=9).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

#[test]
fn replies_fit_and_files_keep_them() {
    let folder = Folder::new();
    let file = folder.file("a.stasis");
    let model = open("recall-llama");
    let mut session = asked(&model);
    session.set_constraint(Constraint::Regex("(yes|no), [a-z]{2,9}[.!]"), None).unwrap();
    let (text, stop) = reply(&mut session);
    assert!(fits(&text), "{text}");
    assert_eq!(stop, Stop::EndToken);
    session.save(&file, Default::default()).unwrap();
    let report = Snapshot::open(&file).unwrap().verify(&model, Default::default()).unwrap();
    assert_eq!(report.drawn_otherwise, 0);
    let mut loaded = Session::load(&model, &file, Default::default()).unwrap();
    for each in [&mut session, &mut loaded] {
        each.append_message("user", "again", Reply::Prompt, Default::default()).unwrap();
    }
    let (text, _) = reply(&mut loaded);
    assert!(fits(&text), "{text}");
    assert_eq!(reply(&mut session).0, text);
    assert_eq!(loaded.digest().unwrap(), session.digest().unwrap());
    session.set_constraint(Constraint::None, None).unwrap();
    session.append_message("user", "again", Reply::Prompt, Default::default()).unwrap();
    assert!(!fits(&reply(&mut session).0));
}

/// What the C library has drawn under constraints and sets of tokens.
#[test]
fn golden_files_are_verified() {
    for (name, model) in [
        ("replies", "recall-llama"),
        ("replies-gemma", "recall-gemma3"),
        ("none", "recall-llama"),
        ("sets", "recall-gemma3"),
    ] {
        let file = data(&format!("golden/constraints/{name}.stasis"));
        let snapshot = Snapshot::open(file).unwrap();
        let report = snapshot.verify(&open(model), Default::default()).unwrap();
        assert!(report.drawn > 5, "{name}");
        assert_eq!(report.drawn_otherwise, 0, "{name}");
    }
}

#[test]
fn refusals() {
    let model = open("recall-llama");
    let mut session = asked(&model);
    let error = session
        .set_constraint(Constraint::JsonSchema(r#"{"multipleOf": 3}"#), None)
        .expect_err("not supported");
    assert_eq!(error.status(), Status::Unsupported);
    assert!(error.to_string().contains("multipleOf"), "{error}");
    let bad = session.set_constraint(Constraint::Grammar("root ::= other"), None);
    assert_eq!(status(bad), Status::InvalidArgument);
    let cancel = Cancel::new().unwrap();
    cancel.request();
    assert_eq!(status(session.set_constraint(Constraint::Json, Some(&cancel))), Status::Cancelled);
}

#[test]
fn masks_of_the_hosts_own() {
    let model = open("recall-llama");
    let mut session = asked(&model);
    let mut bits = vec![0; 1024 / 32];
    bits[3] = 1 << 7;
    session.set_allowed(Some(&bits)).unwrap();
    assert_eq!(session.decode().unwrap(), 3 * 32 + 7);
    session.set_constraint(Constraint::Regex("q"), None).unwrap();
    bits[3] = 1;
    session.set_allowed(Some(&bits)).unwrap();
    assert_eq!(status(session.decode()), Status::NoToken);
    assert_eq!(status(session.set_allowed(Some(&bits[..3]))), Status::InvalidArgument);
    session.set_allowed(None).unwrap();
    session.decode().unwrap();
}
