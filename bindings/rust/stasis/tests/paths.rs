//! Digests are equal whichever way a state was reached: in one append or many, by decoding, by
//! steps, through forks, rewinds, files and streams.
mod fixture;
use fixture::*;
use stasis::*;

fn digest(session: &Session) -> Digest {
    session.digest().unwrap()
}

#[test]
fn appends_and_forks() {
    for model in [gemma(), tiny()] {
        let tokens = some_tokens(200, 3);
        let whole = session_of(&model, &tokens);
        let mut pieces = alone(&model);
        let chunked = RunOptions { chunk: 5, ..Default::default() };
        pieces.append(&tokens[..70], chunked).unwrap();
        let mut child = pieces.fork().unwrap();
        for token in &tokens[70..] {
            pieces.append(&[*token], RunOptions::default()).unwrap();
        }
        assert_eq!(digest(&pieces), digest(&whole));
        assert_eq!(bits(&pieces.logits().unwrap()), bits(&whole.logits().unwrap()));
        assert_ne!(digest(&child), digest(&whole));
        child.append(&tokens[70..], RunOptions::default()).unwrap();
        assert_eq!(digest(&child), digest(&whole));
        drop(pieces);
        assert_eq!(child.tokens(0).unwrap(), tokens);
    }
}

#[test]
fn drawn_stepped_and_given() {
    let model = tiny();
    let prompt = some_tokens(80, 4);
    let mut decoded = session_of(&model, &prompt);
    let sampling = Sampling { temperature: 1.0, top_k: 20, seed: 11, ..Default::default() };
    decoded.set_sampling(&sampling).unwrap();
    let mut stepped = decoded.fork().unwrap();
    let mut other = session_of(&model, &some_tokens(9, 5));
    let mut drawn = Vec::new();
    for _ in 0..6 {
        assert_eq!(decoded.sample().unwrap(), decoded.sample().unwrap());
        let before = decoded.sample().unwrap();
        drawn.push(decoded.decode().unwrap());
        assert_eq!(drawn.last(), Some(&before));
        let more = some_tokens(3, 6);
        let mut items = [StepItem::append(&mut other, &more), StepItem::decode(&mut stepped)];
        step(&mut items, RunOptions::default()).unwrap();
        let [appended, decoded] = items;
        assert_eq!(appended.into_outcome().unwrap(), None);
        assert_eq!(decoded.into_outcome().unwrap(), drawn.last().copied());
    }
    assert_eq!(digest(&stepped), digest(&decoded));
    let given = session_of(&model, &[prompt, drawn].concat());
    assert_eq!(digest(&given), digest(&decoded));
    assert_eq!(other.info().unwrap().position, 9 + 18);
    assert_eq!(other.sources(0).unwrap(), vec![Source::Prompt; 27]);
    assert_eq!(decoded.sources(79).unwrap()[..2], [Source::Prompt, Source::Sampled]);
}

#[test]
fn many_sessions_in_one_step() {
    let model = tiny();
    let prompts: Vec<Vec<Token>> = (0..12).map(|seed| some_tokens(3 + 17 * seed, 20)).collect();
    let mut sessions: Vec<Session> = prompts.iter().map(|_| alone(&model)).collect();
    let mut items: Vec<StepItem<'_>> = sessions
        .iter_mut()
        .zip(&prompts)
        .map(|(session, prompt)| StepItem::append(session, prompt).and_decode())
        .collect();
    step(&mut items, RunOptions::default()).unwrap();
    let drawn: Vec<Token> =
        items.into_iter().map(|item| item.into_outcome().unwrap().unwrap()).collect();
    for ((session, prompt), token) in sessions.iter().zip(&prompts).zip(drawn) {
        let mut own = session_of(&model, prompt);
        assert_eq!(own.decode().unwrap(), token);
        assert_eq!(digest(session), digest(&own));
    }
    step(&mut [], RunOptions::default()).unwrap();
}

#[test]
fn back_and_forth() {
    let model = open("zoo/gemma3-text"); // its local layers keep a window and no more
    let tokens = some_tokens(150, 7);
    let options = SessionOptions { window_retain: RETAIN_NONE, ..ALONE };
    let mut session = Session::create(&model, options).unwrap();
    session.append(&tokens, RunOptions::default()).unwrap();
    session.rewind(149, false, RunOptions::default()).unwrap();
    assert_eq!(digest(&session), digest(&session_of(&model, &tokens[..149])));
    let floor = session.info().unwrap().rewind_floor;
    assert!(floor > 0);
    let refused = session.rewind(floor - 1, false, RunOptions::default());
    assert_eq!(status(refused), Status::Unsupported);
    session.rewind(floor - 1, true, RunOptions::default()).unwrap();
    let short = &tokens[..floor as usize - 1];
    assert_eq!(digest(&session), digest(&session_of(&model, short)));
}

#[test]
fn files_and_streams() {
    let model = gemma();
    let folder = Folder::new();
    let file = folder.file("a.stasis");
    let mut session = asked(&model);
    session.save(&file, SaveOptions::default()).unwrap();
    let mut loaded = Session::load(&model, &file, LoadOptions::default()).unwrap();
    assert_eq!(digest(&loaded), digest(&session));
    assert_eq!(loaded.decode().unwrap(), session.decode().unwrap());
    assert_eq!(digest(&loaded), digest(&session));

    for (codec, keep) in
        [(Codec::Raw, Keep::Full), (Codec::Zstd, Keep::Full), (Codec::Raw, Keep::None)]
    {
        let options = || SaveOptions { codec, keep, ..Default::default() };
        let mut bytes = Vec::new();
        session.write(&mut bytes, options()).unwrap();
        bytes.extend(b"and more");
        let mut from = bytes.as_slice();
        let read = Session::read(&model, &mut from, LoadOptions::default()).unwrap();
        assert_eq!(digest(&read), digest(&session));
        assert_eq!(from, b"and more"); // up to the end and no further
        let snapshot = Snapshot::read(bytes.as_slice()).unwrap();
        assert_eq!(snapshot.info().unwrap().digest, digest(&session));
        assert_eq!(snapshot.info().unwrap().keep, keep);
    }
}
