//! Lends files to the kernel for `farfs`, where that runs as an ordinary user. It does so if an
//! administrator has given it the capability: `setcap cap_sys_admin+ep farfs-lend`.

// It ends the program where nobody reads.
#![deny(clippy::print_stderr)]

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        tell("it takes no arguments, and is started by `farfs mount`");
        return ExitCode::from(2);
    }
    match fuse::privileged::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("{error}; it is started by `farfs mount`"));
            ExitCode::FAILURE
        }
    }
}

fn tell(why: impl Display) {
    let _ = writeln!(std::io::stderr(), "farfs-lend: {why}");
}
