//! Memory of models and sessions, said beforehand and then taken.
mod fixture;
use fixture::*;
use stasis::*;

#[test]
fn sessions_take_what_was_said() {
    let model = open("recall-gemma3");
    for positions in [0usize, 1, 100, 400] {
        let said = model.session_memory(ALONE, positions as u64).unwrap();
        let session = session_of(&model, &vec![5; positions]);
        assert_eq!(session.info().unwrap().kv_bytes, said.kv_bytes);
        assert!(said.kv_bytes <= said.kv_most_bytes);
        assert!(said.bytes() >= said.kv_bytes + said.fixed_bytes);
    }
    let refused = model.session_memory(SessionOptions { capacity: 100, ..ALONE }, 101);
    assert_eq!(status(refused), Status::InvalidArgument);
}

#[test]
fn estimates_are_those_of_the_open_model() {
    let model = open("recall-gemma3");
    let path = data("recall-gemma3");
    let session = SessionOptions::default();
    let told = estimate(&path, EstimateOptions::default(), session, 300).unwrap();
    let info = model.info().unwrap();
    assert_eq!(told.session, model.session_memory(session, 300).unwrap());
    assert_eq!(told.architecture, info.architecture);
    assert_eq!(told.weight_types, info.weight_types);
    assert_eq!(told.weight_bytes, info.weight_bytes);
    let options = EstimateOptions { kernels: Some("reference"), ..Default::default() };
    let mapped = estimate(&path, options, session, 0).unwrap();
    let copied =
        estimate(&path, EstimateOptions { copy_weights: true, ..options }, session, 0).unwrap();
    assert_eq!(copied.mapped_bytes, 0);
    assert_eq!(copied.allocated_bytes - mapped.allocated_bytes, mapped.mapped_bytes);
    let none = estimate("/no/such/model", EstimateOptions::default(), session, 0);
    assert_eq!(status(none), Status::NotFound);
    let options = EstimateOptions { kernels: Some("none such"), ..Default::default() };
    assert_eq!(status(estimate(&path, options, session, 0)), Status::Unsupported);
}
