//! What a model's files say of it.
mod fixture;
use fixture::*;
use stasis::*;

#[test]
fn fields_of_a_directory_have_keys() {
    let model = gemma();
    let all = model.all_metadata().unwrap();
    assert!(all.len() > 20);
    assert!(all.windows(2).all(|pair| pair[0].key < pair[1].key));
    for each in &all {
        assert_eq!(model.metadata(&each.key).unwrap().as_ref(), Some(each));
    }
    let layers = model.metadata("config.num_hidden_layers").unwrap().unwrap();
    assert_eq!((layers.kind, layers.value.as_str()), (MetadataKind::Json, "12"));
    let kind = model.metadata("config.model_type").unwrap().unwrap().kind;
    assert_eq!(kind, MetadataKind::Text);
    assert_eq!(model.metadata("none.such").unwrap(), None);
    assert_eq!(status(model.metadata("a\0b")), Status::InvalidArgument);
}
