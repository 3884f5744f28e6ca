//! Every command has a help text with an example and exit codes, and what is generated from the
//! same table can be used.

use crate::program::farfs;

const COMMANDS: [&str; 15] = [
    "mount",
    "umount",
    "status",
    "wait",
    "mode",
    "explain",
    "serve",
    "invite",
    "volume",
    "device",
    "conflicts",
    "gc",
    "check",
    "completions",
    "man",
];

#[test]
fn every_command_explains_itself_with_an_example_and_its_exit_codes() {
    for command in COMMANDS {
        let help = farfs(&[command, "--help"]).succeeds();
        for part in ["Usage: farfs", "Examples:\n  farfs ", "Exit codes:\n  0  done"] {
            assert!(help.contains(part), "{command} lacks {part:?}:\n{help}");
        }
    }
}

#[test]
fn the_first_page_names_every_command_and_none_that_is_internal() {
    let help = farfs(&["--help"]).succeeds();
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is missing:\n{help}");
    }
    let internal = ["daemon", "guard", "mount.farfs"];
    assert!(!internal.iter().any(|word| help.contains(word)), "{help}");
}

#[test]
fn a_wrong_command_line_ends_with_code_2() {
    for wrong in [&["fly"][..], &["mount"], &["serve"], &["status", "--colour"], &[]] {
        farfs(wrong).fails_with(2);
    }
}

#[test]
fn completions_and_man_pages_are_made_from_the_table() {
    for shell in ["bash", "zsh", "fish"] {
        let script = farfs(&["completions", shell]).succeeds();
        assert!(script.contains("umount") && script.contains("cache-size"), "{shell}");
        assert!(!script.contains("daemon") && !script.contains("mount.farfs"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    farfs(&["man", directory.path().to_str().unwrap()]).succeeds();
    for command in COMMANDS {
        let page = directory.path().join(format!("farfs-{command}.1"));
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("Exit codes"), "{}", page.display());
    }
    let missing = directory.path().join("missing");
    farfs(&["man", missing.to_str().unwrap()]).fails_with(1);
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let ran = crate::program::farfs_unread(&["completions", "bash"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn what_cannot_be_said_changes_nothing_of_what_is_done() {
    let ended = crate::program::farfs_unheard(&["umount", "/nonexistent/mount/point"]);
    assert_eq!(ended, Some(7));
}
