//! Embeddings: texts and tokens as vectors.
mod fixture;
use fixture::*;
use stasis::*;
use std::ops::ControlFlow;

#[test]
fn vectors_are_the_same_in_any_company() {
    let model = open("zoo/qwen3-embedding");
    let info = model.embed_info().unwrap();
    assert_eq!(info.pooling, Some(Pooling::Last));
    assert_eq!((info.dimension, info.normalised, info.tokens_max), (64, true, 2048));
    assert_eq!((info.prompts.len(), info.refusal.as_str()), (0, ""));

    let (long, short) = (some_tokens(70, 1), some_tokens(5, 2));
    let inputs = [EmbedInput::Tokens(&long), EmbedInput::Tokens(&short)];
    let both = model.embed(&inputs, Default::default()).unwrap();
    assert_eq!(both.len(), 2);
    let squares: f32 = both[0].iter().map(|number| number * number).sum();
    assert!((squares - 1.0).abs() < 1e-5, "{squares}");
    let options = EmbedOptions { chunk: 2, ..Default::default() };
    let alone = model.embed(&inputs[1..], options).unwrap();
    assert_eq!(bits(&alone[0]), bits(&both[1]));
    assert!(model.embed(&[], Default::default()).unwrap().is_empty());
}

#[test]
fn a_text_is_its_tokens() {
    let model = open("recall-llama");
    let mean = || EmbedOptions { pooling: Some(Pooling::Mean), ..Default::default() };
    let text = "what is it?";
    let tokens = model.tokenize(text, Tokenize { bos: true, special: false }).unwrap();
    let inputs = [EmbedInput::Text(text), EmbedInput::Tokens(&tokens)];
    let vectors = model.embed(&inputs, mean()).unwrap();
    assert_eq!(bits(&vectors[0]), bits(&vectors[1]));
    assert_eq!(status(model.embed(&inputs, Default::default())), Status::Unsupported);
}

#[test]
fn refusals_stops_and_panics() {
    let model = open("zoo/qwen3-embedding");
    let tokens = some_tokens(70, 1);
    let inputs = [EmbedInput::Tokens(&tokens)];
    assert_eq!(
        status(model.embed(&[EmbedInput::Tokens(&[])], Default::default())),
        Status::InvalidArgument
    );
    assert_eq!(
        status(model.embed(&[EmbedInput::Text("a")], Default::default())),
        Status::Unsupported
    );
    let unknown = EmbedOptions { prompt: Some("query"), ..Default::default() };
    assert_eq!(status(model.embed(&inputs, unknown)), Status::InvalidArgument);
    let cancel = Cancel::new().unwrap();
    cancel.request();
    let cancelled = EmbedOptions { cancel: Some(&cancel), ..Default::default() };
    assert_eq!(status(model.embed(&inputs, cancelled)), Status::Cancelled);
    let mut stop = |_, _| ControlFlow::Break(());
    let stopped = EmbedOptions { progress: Some(&mut stop), ..Default::default() };
    assert_eq!(status(model.embed(&inputs, stopped)), Status::Stopped);
}
