//! Lends files to the kernel for `farfs`, where that runs as an ordinary user. It does so if an
//! administrator has given it the capability: `setcap cap_sys_admin+ep farfs-lend`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("farfs-lend: it takes no arguments, and is started by `farfs mount`");
        return ExitCode::from(2);
    }
    match fuse::privileged::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farfs-lend: {error}; it is started by `farfs mount`");
            ExitCode::FAILURE
        }
    }
}
