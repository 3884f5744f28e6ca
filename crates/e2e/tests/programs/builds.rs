//! Compiling a C program: many small files, times that `make` compares, programs that are run.

use crate::{in_both_modes, same_on_another_device, shell};
use std::fmt::Write;
use std::fs;
use std::path::Path;

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
