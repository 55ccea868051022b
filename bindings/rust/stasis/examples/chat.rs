//! A conversation on the terminal, kept in a file: `chat MODEL [FILE]`. Each line is a user turn;
//! with FILE it continues where it ended.
use stasis::{GenerateOptions, LoadOptions, Model, Reply, RunOptions, SaveOptions, Session};
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, file) = match arguments.as_slice() {
        [model] => (model, None),
        [model, file] => (model, Some(Path::new(file))),
        _ => return Err("usage: chat MODEL [FILE]".into()),
    };
    let model = Model::open(model, Default::default())?;
    let mut session = match file.filter(|file| file.exists()) {
        Some(file) => Session::load(&model, file, LoadOptions::default())?,
        None => Session::create(&model, Default::default())?,
    };
    for line in io::stdin().lock().lines() {
        session.append_message("user", &line?, Reply::Prompt, RunOptions::default())?;
        for generated in session.generate(GenerateOptions::default()) {
            print!("{}", generated?.text);
            io::stdout().flush()?;
        }
        println!();
        if let Some(file) = file {
            session.save(file, SaveOptions::default())?;
        }
    }
    Ok(())
}
