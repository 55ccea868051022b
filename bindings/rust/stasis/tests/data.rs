//! What a host keeps in a session, and the turns of its log.
mod fixture;
use fixture::*;
use stasis::*;

fn names(entries: &[DataEntry]) -> Vec<(&str, u64)> {
    entries.iter().map(|entry| (entry.name.as_str(), entry.bytes)).collect()
}

#[test]
fn data_goes_where_the_session_goes() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(20, 1));
    let plain = session.digest().unwrap();
    assert_eq!(session.list_data().unwrap(), []);
    let large: Vec<u8> = (0..300000).map(|i| (i % 251) as u8).collect();
    session.set_data("title", b"About k").unwrap();
    session.set_data("user", b"").unwrap();
    session.set_data("\u{e9}", &large).unwrap();
    assert_eq!(session.digest().unwrap(), plain);
    let mut child = session.fork().unwrap();
    child.set_data("title", b"Another").unwrap();
    child.remove_data("user").unwrap();
    assert_eq!(child.data("user").unwrap(), None);

    let expected = [("title", 7), ("user", 0), ("\u{e9}", 300000)];
    session.rewind(0, false, RunOptions::default()).unwrap();
    assert_eq!(names(&session.list_data().unwrap()), expected);
    let folder = Folder::new();
    let path = folder.file("s");
    session.save(&path, SaveOptions::default()).unwrap();
    let snapshot = Snapshot::open(&path).unwrap();
    assert_eq!(names(&snapshot.list_data().unwrap()), expected);
    assert_eq!(snapshot.data("\u{e9}").unwrap(), Some(large.clone()));
    assert_eq!(snapshot.data("nothing").unwrap(), None);
    let loaded = Session::load(&model, &path, LoadOptions::default()).unwrap();
    assert_eq!(loaded.data("title").unwrap().as_deref(), Some(&b"About k"[..]));
    assert_eq!(loaded.data("user").unwrap(), Some(vec![]));
    assert_eq!(loaded.data("\u{e9}").unwrap(), Some(large));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut session = alone(&tiny());
    session.set_data("a", b"b").unwrap();
    assert_eq!(status(session.set_data("", b"x")), Status::InvalidArgument);
    assert_eq!(status(session.set_data(&"n".repeat(256), b"x")), Status::InvalidArgument);
    assert_eq!(status(session.set_data("a\0b", b"x")), Status::InvalidArgument);
    assert_eq!(status(session.set_data("a", &vec![0; (1 << 24) + 1])), Status::Unsupported);
    assert_eq!(status(session.remove_data("b")), Status::NotFound);
    assert_eq!(names(&session.list_data().unwrap()), [("a", 1)]);
}

#[test]
fn turns_are_those_of_the_conversation() {
    let model = gemma();
    let mut session = asked(&model);
    let options = GenerateOptions { tokens_max: 60, ..Default::default() };
    let reply: String = session.generate(options).map(|each| each.unwrap().text).collect();
    let turns = session.turns(0).unwrap();
    let found: Vec<_> = turns.iter().map(|turn| (turn.role, turn.source)).collect();
    assert_eq!(found, [(Role::User, Source::Text), (Role::Assistant, Source::Sampled)]);
    assert_eq!((turns[0].begin, turns[0].end), (0, turns[1].begin));
    assert_eq!(turns[1].end, session.info().unwrap().position);
    let text = |turn: &Turn| session.text(turn.content_begin..turn.content_end).unwrap();
    assert_eq!(text(&turns[0]), "Let's start by defining a variable k equal to 5. What is k?");
    assert_eq!(text(&turns[1]), reply);
    assert_eq!(session.turns(turns[1].begin).unwrap(), turns[1..]);
    assert_eq!(status(session.turns(turns[1].end + 1)), Status::InvalidArgument);

    let folder = Folder::new();
    session.save(folder.file("s"), SaveOptions::default()).unwrap();
    assert_eq!(Snapshot::open(folder.file("s")).unwrap().turns(0).unwrap(), turns);
    let bare = session_of(&tiny(), &some_tokens(3, 1));
    let turns = bare.turns(0).unwrap();
    assert_eq!((turns.len(), turns[0].role, turns[0].source), (1, Role::None, Source::Prompt));
    assert_eq!((turns[0].content_begin, turns[0].content_end), (0, 3));
}
