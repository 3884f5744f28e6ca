//! Compiling a C program: many small files, times that `make` compares, programs that are run.

use crate::{BOUND, in_both_modes, same_on_another_device, shell};
use e2e::mount::Wanted;
use e2e::{Lane, World};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PARTS: usize = 14;

/// A program of many parts, with headers on which only some depend.
fn write_source(folder: &Path) {
    fs::create_dir_all(folder.join("parts")).unwrap();
    let mut main = String::from("#include <stdio.h>\n");
    let (mut sum, mut objects) = (String::from("0"), String::from("main.o"));
    for part in 0..PARTS {
        let header = format!("int part_{part}(int);\n#define PART_{part} {part}\n");
        fs::write(folder.join(format!("parts/{part}.h")), header).unwrap();
        let source = format!(
            "#include \"{part}.h\"\n#include \"shared.h\"\n\
             int part_{part}(int x) {{ return x * SHARED + PART_{part}; }}\n"
        );
        fs::write(folder.join(format!("parts/{part}.c")), source).unwrap();
        writeln!(main, "#include \"parts/{part}.h\"").unwrap();
        write!(sum, " + part_{part}({part})").unwrap();
        write!(objects, " parts/{part}.o").unwrap();
    }
    writeln!(main, "int main(void) {{ printf(\"%d\\n\", {sum}); return 0; }}").unwrap();
    fs::write(folder.join("main.c"), main).unwrap();
    fs::write(folder.join("parts/shared.h"), "#define SHARED 1\n").unwrap();
    let makefile = format!(
        "program: {objects}\n\tcc -o $@ $^\n\
         %.o: %.c\n\tcc -O1 -MMD -c -o $@ $<\n\
         -include main.d $(wildcard parts/*.d)\n\
         clean:\n\trm -f program *.o *.d parts/*.o parts/*.d\n"
    );
    fs::write(folder.join("Makefile"), makefile).unwrap();
}

fn expected(shared: usize) -> String {
    let sum: usize = (0..PARTS).map(|part| part * shared + part).sum();
    format!("{sum}\n")
}

#[test]
fn a_program_is_built_changed_and_built_again() {
    in_both_modes(|world, server, mount| {
        let source = mount.path("source");
        write_source(&source);
        shell(&source, "make -j2 2>&1");
        assert_eq!(shell(&source, "./program"), expected(1));
        assert!(shell(&source, "make").contains("up to date"), "nothing is built twice");
        // One part is changed: that part and the program are built anew, nothing else.
        shell(&source, "sed -i 's/x \\* SHARED/x * SHARED + 0/' parts/3.c");
        let built = shell(&source, "make");
        assert_eq!(built.matches(" -c ").count(), 1, "{built}");
        fs::write(source.join("parts/shared.h"), "#define SHARED 2\n").unwrap();
        shell(&source, "make -j2 2>&1");
        assert_eq!(shell(&source, "./program"), expected(2));
        let other = same_on_another_device(world, server, mount);
        assert_eq!(shell(&other.path("source"), "./program"), expected(2));
        assert!(shell(&other.path("source"), "make").contains("up to date"), "times are the same");
        shell(&source, "make clean");
        assert!(!source.join("program").exists());
    });
}

/// Every file below a folder, by path from there.
fn bytes_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else {
                found.insert(path, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

/// Two jobs at once read headers that are not here yet and write objects beside each other, over
/// the line of a house in the country. What comes out is, byte for byte, what the disk here gives.
#[test]
fn a_parallel_build_over_a_slow_link_gives_what_it_gives_on_the_local_disk() {
    let world = World::bounded(2 * BOUND);
    let server = world.server();
    let mut author = world.mount(&server, "author", "connected");
    write_source(&author.path("source"));
    author.unmount(&[]);
    let local = world.folder("local");
    write_source(&local);
    shell(&local, "make -j2 2>&1");
    let delay = Duration::from_millis(30);
    let (up, down) = (Lane::new(348_000, delay), Lane::new(1_500_000, delay));
    let wanted = Wanted { mode: "auto", up: Some(up), down: Some(down), ..Wanted::default() };
    let mount = world.mount_with(&server, "far", wanted);
    let source = mount.path("source");
    shell(&source, "make -j2 2>&1");
    assert_eq!(mount.mode(), "partial", "nobody waits for every file at this distance");
    assert_eq!(bytes_below(&source), bytes_below(&local));
    // A header that all parts see is changed while the build is still on its way up.
    for folder in [&source, &local] {
        fs::write(folder.join("parts/shared.h"), "#define SHARED 2\n").unwrap();
        shell(folder, "make -j2 2>&1");
    }
    assert_eq!(shell(&source, "./program"), expected(2));
    assert_eq!(bytes_below(&source), bytes_below(&local));
    let other = same_on_another_device(&world, &server, &mount);
    assert_eq!(bytes_below(&other.path("source")), bytes_below(&local));
    assert!(shell(&other.path("source"), "make -j2").contains("up to date"));
}
