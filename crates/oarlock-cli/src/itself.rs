//! This program, started again for a part that is not for users.

use std::io;

use tokio::process::Command;

/// `oarlock SUBCOMMAND` in a process group of its own.
pub(crate) fn again(subcommand: &str) -> io::Result<Command> {
    // This very program, also if the file was replaced meanwhile.
    let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
    let mut command = Command::new(program);
    command.arg0("oarlock").arg(subcommand).process_group(0);
    Ok(command)
}
