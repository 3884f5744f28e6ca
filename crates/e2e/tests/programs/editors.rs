//! The ways in which editors save: each must leave the new text, and leave the old one until then.

use crate::{in_both_modes, same_on_another_device, shell};
use e2e::contents::noise;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn text(lines: usize) -> String {
    (0..lines).map(|line| format!("line {line} of the text, which is not long\n")).collect()
}

/// Writes a temporary file beside it, syncs it, and renames it over the old one.
fn save_by_rename(path: &Path, text: &str) {
    let fresh = path.with_extension("tmp~");
    let mut file = File::create_new(&fresh).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::set_permissions(&fresh, fs::metadata(path).unwrap().permissions()).unwrap();
    fs::rename(&fresh, path).unwrap();
    File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
}

/// Cuts the old file and writes into it.
fn save_in_place(path: &Path, text: &str) {
    let mut file = File::options().write(true).truncate(true).open(path).unwrap();
    for piece in text.as_bytes().chunks(4096) {
        file.write_all(piece).unwrap();
    }
    file.sync_all().unwrap();
}

/// Renames the old file away, writes a new one, and removes the old one.
fn save_with_backup(path: &Path, text: &str) {
    let backup = path.with_extension("txt~");
    fs::rename(path, &backup).unwrap();
    fs::write(path, text).unwrap();
    fs::remove_file(&backup).unwrap();
}

#[test]
fn a_text_is_saved_in_every_way_that_editors_have() {
    in_both_modes(|world, server, mount| {
        let path = mount.path("notes.txt");
        fs::write(&path, text(100)).unwrap();
        for (round, save) in
            [save_by_rename, save_in_place, save_with_backup].into_iter().enumerate()
        {
            for lines in [3000, 20, 700] {
                let text = text(lines + round);
                save(&path, &text);
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
        shell(&mount.mountpoint, "sed -i 's/not long/short/' notes.txt");
        assert!(fs::read_to_string(&path).unwrap().contains("which is short"));
        assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 1, "nothing is left beside");
        same_on_another_device(world, server, mount);
    });
}

/// An open descriptor of a text that is replaced goes on showing the old one, so that a program
/// which reads while another saves sees no mixture.
#[test]
fn whoever_reads_while_another_saves_sees_one_text_or_the_other() {
    in_both_modes(|_, _, mount| {
        let path = mount.path("notes.txt");
        fs::write(&path, text(2000)).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        let mut reader = File::open(&path).unwrap();
        save_by_rename(&path, &text(10));
        let mut seen = String::new();
        std::io::Read::read_to_string(&mut reader, &mut seen).unwrap();
        assert_eq!(seen, text(2000));
        assert_ne!(fs::metadata(&path).unwrap().ino(), before);
        assert_eq!(fs::read_to_string(&path).unwrap(), text(10));
    });
}

#[test]
fn a_small_change_of_a_large_document_costs_little() {
    in_both_modes(|_, _, mount| {
        let path = mount.path("document.txt");
        let mut document = noise(5, 1_400_000);
        fs::write(&path, &document).unwrap();
        mount.wait();
        let ((), bytes) = mount.relay.traffic_of(|| {
            document[700_000..700_040].copy_from_slice(&[b'!'; 40]);
            let fresh = mount.path(".document.txt.new");
            fs::write(&fresh, &document).unwrap();
            fs::rename(&fresh, &path).unwrap();
            mount.wait();
        });
        assert!(bytes < 120_000, "40 bytes were changed; {bytes} went over the link");
        assert!(fs::read(&path).unwrap() == document);
    });
}
