//! Shell completions and manual pages, made from the command line's own description.

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::{Failure, USAGE};
use crate::output;

pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "oarlock", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

pub(crate) fn man(command: Option<&str>) -> Result<u8, Failure> {
    let mut program = Cli::command();
    program.build();
    let page = match command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).filter(|found| !found.is_hide_set());
            let found =
                found.ok_or_else(|| Failure::new(USAGE, format!("there is no command {name:?}: see oarlock help")))?;
            found.clone().display_name(format!("oarlock-{name}"))
        }
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
