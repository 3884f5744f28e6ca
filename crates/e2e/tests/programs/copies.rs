//! Copying trees into the volume, out of it, and within it.

use crate::{in_both_modes, same_on_another_device, shell};
use e2e::contents::{noise, tree, tree_with_attributes};
use std::fs;
use std::path::Path;

/// A tree with a bit of everything.
fn write_tree(folder: &Path) {
    for directory in 0..6 {
        let inner = folder.join(format!("d{directory}/deeper"));
        fs::create_dir_all(&inner).unwrap();
        for file in 0..12 {
            let bytes = noise(directory * 100 + file, 1 << (file + 3));
            fs::write(inner.join(format!("f{file}")), bytes).unwrap();
        }
    }
    shell(
        folder,
        "ln -s d1/deeper link && ln d0/deeper/f1 d2/second && mkfifo pipe && chmod 741 d3 \
         && chmod 4711 d4/deeper/f3 && : > empty && truncate -s 3M holes && echo x >> holes \
         && setfattr -n user.colour -v red d5/deeper/f2 && touch -d '2001-02-03 4:05:06.789' d0 \
         && chown 1000:1000 d5/deeper/f4 && mkdir 'name with blanks' $'line\\nbreak'",
    );
}

#[test]
fn rsync_copies_there_and_back_and_finds_no_difference() {
    in_both_modes(|world, server, mount| {
        let outside = world.folder("outside");
        write_tree(&outside);
        let (here, there) = (outside.display(), mount.mountpoint.display());
        shell(&outside, &format!("rsync -aHXS --numeric-ids {here}/ {there}/tree/"));
        let compare = |from: &str, to: &str| {
            shell(&outside, &format!("rsync -aHXnci --delete --numeric-ids {from}/ {to}/"))
        };
        let inside = format!("{there}/tree");
        assert_eq!(compare(&here.to_string(), &inside), "", "by checksum");
        same_on_another_device(world, server, mount).unmount(&[]);
        shell(&outside, &format!("mkdir ../back && rsync -aHXS --numeric-ids {inside}/ ../back/"));
        let back = world.path("back");
        assert_eq!(compare(&here.to_string(), &back.display().to_string()), "");
        assert_eq!(tree(&outside), tree(&back));
        // A file that grows is sent in place and through a temporary file.
        shell(&outside, "seq 100000 >> d1/deeper/f5");
        shell(&outside, &format!("rsync -aHX --inplace {here}/ {inside}/"));
        shell(&outside, "seq 50000 >> d1/deeper/f6 && rm d2/second && rm -r d3");
        shell(&outside, &format!("rsync -aHX --delete {here}/ {inside}/"));
        assert_eq!(compare(&here.to_string(), &inside), "");
    });
}

#[test]
fn tar_packs_and_unpacks_in_the_volume() {
    in_both_modes(|world, server, mount| {
        let outside = world.folder("outside");
        write_tree(&outside);
        shell(&outside, "tar --xattrs -cSf ../tree.tar .");
        fs::create_dir(mount.path("tree")).unwrap();
        let archive = world.path("tree.tar");
        let archive = archive.display();
        let inside = mount.path("tree");
        shell(&inside, &format!("tar --xattrs -xpf {archive} && tar --compare -f {archive}"));
        assert_eq!(tree(&outside), tree(&inside));
        shell(
            &mount.mountpoint,
            "tar -czf packed.tar.gz tree && tar -tzf packed.tar.gz >/dev/null",
        );
        shell(&mount.mountpoint, "tar --compare -zf packed.tar.gz");
        same_on_another_device(world, server, mount);
    });
}

#[test]
fn a_copy_within_the_volume_costs_names_and_no_contents() {
    in_both_modes(|world, server, mount| {
        fs::create_dir(mount.path("one")).unwrap();
        for file in 0..20 {
            fs::write(mount.path(format!("one/{file}")), noise(file, 100_000)).unwrap();
        }
        mount.wait();
        let ((), bytes) = mount.relay.traffic_of(|| {
            shell(&mount.mountpoint, "cp -a one two");
            mount.wait();
        });
        assert!(bytes < 400_000, "2 MB were copied; {bytes} bytes went over the link");
        assert_eq!(
            tree_with_attributes(&mount.path("one")),
            tree_with_attributes(&mount.path("two"))
        );
        same_on_another_device(world, server, mount);
    });
}

#[test]
fn what_walks_trees_finds_everything() {
    in_both_modes(|world, _, mount| {
        let outside = world.folder("outside");
        write_tree(&outside);
        shell(&outside, &format!("cp -a . {}/tree", mount.mountpoint.display()));
        for line in [
            "find . | LC_ALL=C sort",
            "find . -type f -size +100c -newermt 2020-01-01 | LC_ALL=C sort",
            "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum",
            "grep -rlE 'x$' . | LC_ALL=C sort",
            "du -a --apparent-size . | cut -f2 | LC_ALL=C sort",
        ] {
            assert_eq!(shell(&outside, line), shell(&mount.path("tree"), line), "{line}");
        }
        shell(&mount.mountpoint, "rm -rf tree");
        assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
    });
}
