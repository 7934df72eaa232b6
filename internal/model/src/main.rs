//! Checks the model: each scene exhaustively with all guards, and then without each of them. With a folder, it replays the traces
//! in the folder instead. README.md explains the model.
//! It prints tables, and fails if an invariant is violated with all guards, or if none is without one of them, unless it
//! is known that no scene shows it.

mod explore;
mod guard;
mod model;
mod relay;
mod trace;

use guard::{Guard, Guards, UNSHOWN};
use std::process::ExitCode;

const THREADS: usize = 2;

fn main() -> ExitCode {
    let failed = match std::env::args().nth(1) {
        Some(folder) => trace::replay_all(folder.as_ref()),
        None => check_all(),
    };
    ExitCode::from(u8::from(failed))
}

/// Checks all scenes, and reports whether a check has failed.
fn check_all() -> bool {
    let mut failed = false;
    println!("| scene | states | all is delivered in some state | violated |\n| --- | --: | --- | --- |");
    for scene in explore::scenes(Guards::all()) {
        let (name, about) = (scene.name, scene.about);
        let found = explore::check(scene, THREADS);
        let violated = found.violation.map_or("none", |(broken, path)| {
            eprintln!("{name}: {path:#?}");
            broken.text()
        });
        failed |= violated != "none" || !found.delivers || !found.complete;
        println!("| {name}: {about} | {} | {} | {violated} |", found.states, if found.delivers { "yes" } else { "no" });
    }
    println!("\n| without this guard | is violated | scene | actions | states |\n| --- | --- | --- | --: | --: |");
    for guard in Guard::ALL {
        if UNSHOWN.contains(guard) {
            println!("| {} | not shown | | | |", guard.text());
            continue;
        }
        let first = explore::scenes(Guards::without(*guard)).into_iter().find_map(|scene| {
            let name = scene.name;
            let found = explore::check(scene, THREADS);
            found.violation.map(|(broken, path)| (broken, name, path.len(), found.states))
        });
        match first {
            Some((broken, name, actions, states)) => println!("| {} | {} | {name} | {actions} | {states} |", guard.text(), broken.text()),
            None => {
                failed = true;
                println!("| {} | **nothing** | | | |", guard.text());
            }
        }
    }
    failed
}
