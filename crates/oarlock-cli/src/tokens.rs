//! `tokens`: what an operator does about fencing tokens.

use oarlock::Locks;

use crate::args::TokensCommand;
use crate::exit::Failure;
use crate::output::say;

pub(crate) async fn tokens(command: &TokensCommand, locks: &Locks) -> Result<u8, Failure> {
    let TokensCommand::Raise { name, above } = command;
    locks.raise_tokens(name, *above).await?;
    say(format!("the next token of {name:?} is above {above}"));
    Ok(0)
}
