//! Tokens of a vocabulary, and how the library was built.
mod fixture;
use fixture::*;
use stasis::*;

#[test]
fn tokens_are_what_the_model_makes_of_texts() {
    let model = open("recall-gemma3");
    let tokens: Vec<TokenInfo> = model.tokens().collect::<Result<_>>().unwrap();
    assert_eq!(tokens.len(), model.info().unwrap().vocabulary as usize);
    let piece = Detokenize { piece: true, ..Default::default() };
    for token in &tokens {
        assert_eq!(token.piece, model.detokenize(&[token.token], piece).unwrap());
        assert!(token.score.map_or(true, f32::is_finite));
    }
    let of = |kind| tokens.iter().filter(|token| token.kind == kind).count();
    assert_eq!((of(TokenKind::Byte), of(TokenKind::Unknown)), (256, 1));
    assert!(of(TokenKind::Special) >= 4 && of(TokenKind::Normal) > 50);
    assert!(tokens.iter().any(|token| token.score.map_or(false, |score| score < 0.0)));
    let ends: Vec<Token> =
        tokens.iter().filter(|token| token.ends).map(|token| token.token).collect();
    let mut expected = model.info().unwrap().end_tokens;
    expected.sort();
    assert_eq!(ends, expected);
}

#[test]
fn what_has_no_such_token_says_so() {
    let model = open("recall-gemma3");
    let beyond = model.info().unwrap().vocabulary;
    assert_eq!(status(model.token(beyond)), Status::InvalidArgument);
    let without = open("zoo/gemma3-text");
    assert_eq!(status(without.token(0)), Status::Unsupported);
    assert!(without.tokens().next().unwrap().is_err());
}

#[test]
fn the_build_names_its_version() {
    let number = version();
    let text = format!("{}.{}.{} (", number >> 16, number >> 8 & 255, number & 255);
    assert!(build().starts_with(&text), "{}", build());
}
