//! The page of what the models are and what came of them.

use std::fmt::Write;

use crate::{ALL, Explored, Proof};

/// What the page begins with, and what stands behind each model.
const HEAD: &str = include_str!("page.md");

/// The seed of the walks.
const SEED: u64 = 1;

/// Explores all models, with and without their faults, and answers the page of them.
///
/// # Errors
/// A rule that is broken though the model has no fault, or a fault that breaks none.
pub fn page() -> Result<String, String> {
    let (mut overview, mut each) = (String::new(), String::new());
    for proof in ALL {
        add(proof, &mut overview, &mut each)?;
    }
    let columns =
        "| model | rules | states explored | states walked | faults caught |\n| --- | --- | --- | --- | --- |";
    let head = HEAD.trim_end();
    Ok(format!("<!-- Made by `cargo xtask models`. -->\n\n{head}\n\n{columns}\n{overview}{each}"))
}

fn add(proof: &Proof, overview: &mut String, each: &mut String) -> Result<(), String> {
    let (name, rules, mutations) = (proof.name, proof.rules, proof.mutations);
    let explored = fine(proof, (proof.explore)(None))?;
    let walked = fine(proof, (proof.walk)(SEED))?;
    let counts = format!("{} | {explored} | {walked} | {}", rules.len(), mutations.len());
    let _ = writeln!(overview, "| [{name}](#{name}) | {counts} |");
    let _ = write!(each, "\n## {name}\n\nIt stands for\n\n");
    for file in proof.stands_for {
        let _ = writeln!(each, "- [{file}](../{file})");
    }
    let _ = write!(each, "\nRules:\n\n");
    for rule in rules {
        let _ = writeln!(each, "- {rule}");
    }
    let _ = write!(each, "\n| fault | states until it was caught |\n| --- | --- |\n");
    for mutation in mutations {
        let Explored { states, broken } = (proof.explore)(Some(mutation));
        if broken.is_empty() {
            return Err(format!("{name}: {mutation} breaks no rule"));
        }
        let _ = writeln!(each, "| {mutation} | {states} |");
    }
    Ok(())
}

/// How many states there were, if no rule was broken.
fn fine(proof: &Proof, explored: Explored) -> Result<usize, String> {
    match explored.broken.first() {
        None => Ok(explored.states),
        Some((rule, way)) => Err(format!("{}: not {rule:?} after {way}", proof.name)),
    }
}
