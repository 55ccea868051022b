//! The calls that other tests pass by, each with the numbers it must give.
mod fixture;
use fixture::*;
use stasis::*;

#[test]
fn versions_and_models() {
    assert_eq!(version(), stasis_sys::STASIS_HEADER_VERSION);
    let model = gemma();
    let info = model.info().unwrap();
    assert_eq!(info.architecture, "gemma3");
    assert_eq!(info.layer_windows.len(), info.layers as usize);
    assert_eq!(
        (info.attention.len(), info.mlp.len()),
        (info.attention.len(), info.layers as usize)
    );
    assert!(info.has_tokenizer && info.chat_template == "gemma" && !info.end_tokens.is_empty());
    assert!(info.bos.is_some() && info.weight_types.contains("BF16"), "{}", info.weight_types);
    assert_eq!(info.model.to_string().len(), 64);
    assert!(!tiny().info().unwrap().has_tokenizer);
    let budget = ModelOptions { kv_budget_bytes: 1 << 20, ..Default::default() };
    let stats = Model::open(data("recall-gemma3"), budget).unwrap().stats().unwrap();
    assert_eq!((stats.kv_budget, stats.kv_free), (Some(1 << 20), Some(1 << 20)));
    let recommended = model.recommended_sampling().unwrap(); // whose files say nothing
    assert_eq!((recommended.temperature, recommended.min_p), (0.6, 0.1));
    assert_eq!((recommended.repetition_penalty, recommended.penalty_window), (1.1, 64));
    assert!(format!("{model:?}").contains(&info.model.to_string()));
    let reference = ModelOptions { kernels: Some("reference"), ..Default::default() };
    let reference = Model::open(data("recall-gemma3"), reference).unwrap();
    assert_eq!(reference.info().unwrap().kernels, "reference");
    assert_eq!(asked(&reference).digest().unwrap(), asked(&model).digest().unwrap());
}

#[test]
fn text() {
    let model = gemma();
    let text = "k is 5, \u{e9}\u{1F600}.";
    let tokens = model.tokenize(text, Tokenize::default()).unwrap();
    assert_eq!(model.detokenize(&tokens, Detokenize::default()).unwrap(), text.as_bytes());
    let bos = Tokenize { bos: true, special: true };
    let marked = model.tokenize("<end_of_turn>", bos).unwrap();
    assert_eq!(marked.len(), 2);
    let special = Detokenize { special: true, ..Default::default() };
    assert!(model.detokenize(&marked, special).unwrap().ends_with(b"<end_of_turn>"));
    assert!(model.detokenize(&marked, Detokenize::default()).unwrap().is_empty());
    assert!(model.tokenize("", Tokenize::default()).unwrap().is_empty());
    let messages =
        [Message { role: "user", text: "What is k?" }, Message { role: "assistant", text: "5" }];
    let rendered = model.render(&messages, Reply::None).unwrap();
    assert!(rendered.contains("<start_of_turn>user\nWhat is k?<end_of_turn>"), "{rendered}");
    assert!(model.render(&messages[..1], Reply::Prompt).unwrap().ends_with("model\n"));
    let chat = r#"{"messages": [{"role": "user", "content": "What is k?"}]}"#;
    assert_eq!(
        model.render_chat(chat, Reply::Prompt).unwrap(),
        model.render(&messages[..1], Reply::Prompt).unwrap()
    );
    let mut told = alone(&model);
    assert_eq!(told.append_chat(chat, Reply::Prompt, Default::default()).unwrap(), None);
    assert_eq!(told.reply(None, false).unwrap(), r#"{"role": "assistant", "content": ""}"#);
    let other = chat.replace("k?", "m?");
    let differs = told.append_chat(&other, Reply::Prompt, Default::default()).unwrap().unwrap();
    assert!(differs > 0 && differs < told.info().unwrap().position);
    let mut session = alone(&model);
    session.append_message("system", "Be brief.", Reply::None, Default::default()).unwrap();
    assert!(session.info().unwrap().pending_bytes > 0);
    session.append_message("user", "What is k?", Reply::Prompt, Default::default()).unwrap();
    let end = session.info().unwrap().position;
    assert!(session.text(0..end).unwrap().contains("Be brief."));
    let sources = session.sources(0).unwrap();
    assert!(sources.contains(&Source::Template) && sources.contains(&Source::Text));
    assert_eq!(sources.len(), session.tokens(0).unwrap().len());
}

#[test]
fn chat_tokens() {
    let model = open("recall-llama");
    let mut session = alone(&model);
    let asking =
        |text: &str| format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}]}}"#);
    let (first, other) = (asking(&"What is k? ".repeat(100)), asking("What is m?"));
    let whole = session.chat_tokens(&first, Reply::Prompt).unwrap();
    assert_eq!(whole.position, 0);
    assert!(whole.tokens.len() > session.chat_tokens(&first, Reply::None).unwrap().tokens.len());
    assert_eq!(session.info().unwrap().position, 0);
    assert_eq!(session.append_chat(&first, Reply::Prompt, Default::default()).unwrap(), None);
    assert_eq!(session.tokens(0).unwrap(), whole.tokens);
    let none = session.chat_tokens(&first, Reply::Prompt).unwrap();
    assert_eq!((none.position, none.tokens.len()), (whole.tokens.len() as u64, 0));

    let rest = session.chat_tokens(&other, Reply::Prompt).unwrap();
    assert!(rest.position > 0);
    let differs = session.append_chat(&other, Reply::Prompt, Default::default()).unwrap();
    assert_eq!(differs, Some(rest.position));
    session.rewind(rest.position, false, Default::default()).unwrap();
    assert_eq!(session.append_chat(&other, Reply::Prompt, Default::default()).unwrap(), None);
    assert_eq!(session.tokens(rest.position).unwrap(), rest.tokens);
    for broken in ["[", ""] {
        assert_eq!(status(session.chat_tokens(broken, Reply::None)), Status::InvalidArgument);
    }
}

#[test]
fn likelihoods() {
    let model = tiny();
    let mut session = session_of(&model, &some_tokens(30, 1));
    let before = session.digest().unwrap();
    let top = session.top(5).unwrap();
    assert_eq!(top[0].0, session.sample().unwrap());
    assert!(top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    let tokens: Vec<Token> = top.iter().map(|(token, _)| *token).collect();
    let scores = session.score(&tokens, RunOptions::default()).unwrap();
    assert_eq!(scores[0] as f32, top[0].1);
    let mut longer = session.fork().unwrap();
    longer.append(&tokens[..1], RunOptions::default()).unwrap();
    let second = longer.score(&tokens[1..2], RunOptions::default()).unwrap();
    assert_eq!(second[0].to_bits(), scores[1].to_bits());
    assert_eq!(session.digest().unwrap(), before);
    let only = Sampling { bias: vec![(tokens[3], f32::INFINITY.min(1e9))], ..Default::default() };
    session.set_sampling(&only).unwrap();
    assert_eq!(session.sample().unwrap(), tokens[3]);
    session.set_sampling(&Sampling::default()).unwrap();
    assert_eq!(session.sample().unwrap(), tokens[0]);
}

#[test]
fn keys_values_and_attention() {
    let model = tiny();
    let info = model.info().unwrap();
    let options = SessionOptions { track_attention: Track::ByHead, ..ALONE };
    let mut session = Session::create(&model, options).unwrap();
    session.append(&some_tokens(100, 1), RunOptions::default()).unwrap();
    let kv = session.kv(1, 10..14).unwrap();
    assert_eq!(kv.keys.len(), 4 * (info.kv_heads * info.head_dim) as usize);
    assert_eq!(kv.values.len(), kv.keys.len());
    let other = session_of(&model, &some_tokens(100, 1)).kv(1, 0..100).unwrap();
    let row = (info.kv_heads * info.head_dim) as usize;
    assert_eq!(kv.keys, other.keys[10 * row..14 * row]);
    assert_eq!(kv.values, other.values[10 * row..14 * row]);
    let total = session.attention(Attention::Total).unwrap();
    let by_head = session.attention(Attention::ByHead).unwrap();
    let rows = (info.layers * info.heads) as usize;
    assert_eq!((total.len(), by_head.len()), (100, 100 * rows));
    let sums: Vec<f64> = (0..100).map(|at| by_head.iter().skip(at).step_by(100).sum()).collect();
    assert_eq!(total, sums);
    session.evict(0..64).unwrap();
    assert_eq!(session.info().unwrap().positions_evicted, 64);
    assert_eq!(status(session.kv(1, 10..14)), Status::NotFound);
    assert_eq!(session.tokens(0).unwrap(), some_tokens(100, 1));
}

#[test]
fn shared_pages() {
    let model = tiny();
    let tokens = some_tokens(200, 1);
    let common = SessionOptions::default();
    let mut first = Session::create(&model, common).unwrap();
    first.append(&tokens, RunOptions::default()).unwrap();
    let mut second = Session::create(&model, common).unwrap();
    second.append(&tokens, RunOptions::default()).unwrap();
    assert_eq!(second.info().unwrap().tokens_reused, 192);
    assert!(model.stats().unwrap().kv_shared > 0);
    let numbered = SessionOptions { domain: Domain::Number(7), ..common };
    let mut third = Session::create(&model, numbered).unwrap();
    third.append(&tokens, RunOptions::default()).unwrap();
    assert_eq!(third.info().unwrap().tokens_reused, 0);
    assert_eq!(third.digest().unwrap(), second.digest().unwrap());
}

/// A failure of one item of a step does not affect the others.
#[test]
fn items_of_a_step() {
    let model = tiny();
    let mut good = session_of(&model, &some_tokens(5, 1));
    let mut small = Session::create(&model, SessionOptions { capacity: 2, ..ALONE }).unwrap();
    let tokens = [1, 2, 3];
    let mut items = [StepItem::append(&mut small, &tokens), StepItem::decode(&mut good)];
    step(&mut items, RunOptions::default()).unwrap();
    let [small_item, good_item] = items;
    let error = small_item.into_outcome().unwrap_err();
    assert_eq!(error.status(), Status::Full);
    assert!(!error.message().is_empty());
    assert!(good_item.into_outcome().unwrap().is_some());
    assert_eq!(small.info().unwrap().position, 0);
    let other = gemma();
    let mut foreign = asked(&other);
    let mut items = [StepItem::decode(&mut good), StepItem::decode(&mut foreign)];
    assert_eq!(status(step(&mut items, RunOptions::default())), Status::InvalidArgument);
    assert!(matches!(items[0].outcome(), Ok(None)));
    let mut row = |_, _: &[f32]| std::ops::ControlFlow::Continue(());
    let options = RunOptions { logits: Some(&mut row), ..Default::default() };
    let refused = step(&mut [StepItem::decode(&mut good)], options);
    assert_eq!(status(refused), Status::InvalidArgument);
}
