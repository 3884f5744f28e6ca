//! The program where it runs as an ordinary user.

use crate::{SECOND, has_ended, text};
use e2e::contents::noise;
use e2e::machine::{Machine, USER};
use e2e::world::program;
use e2e::{Server, World, eventually, run};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// CAP_SYS_ADMIN for whoever runs the file, as `setcap cap_sys_admin+ep` writes it
/// (`linux/capability.h`: VFS_CAP_REVISION_2 with VFS_CAP_FLAGS_EFFECTIVE, bit 21).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn an_ordinary_user_mounts_works_and_unmounts() {
    let world = World::new();
    let server = world.server();
    let machine = Machine::new(&world);
    let home = Machine::home(&world);
    let shell = |line: &str| machine.shell(&home, line);
    let (farfs, work) = (text(&program()), text(&home.join("work")));
    let mount = |url: &str| shell(&format!("{farfs} mount '{url}' {work}")).succeeds();
    let umount = || shell(&format!("{farfs} umount {work}")).succeeds();
    mount(&server.invite());
    // The volume's root belongs to who made the server: that is root here.
    let made = shell(&format!("cd {work} && ls && mkdir mine"));
    assert!(made.err.contains("Permission denied"), "{made:#?}");
    let status = shell(&format!("{farfs} status {work}")).succeeds();
    assert!(status.contains("home/.local/state/farfs/main-"), "its state is in the home: {status}");
    let as_root = run(machine.command().args(["ls", &work]));
    assert!(as_root.err.contains("Permission denied"), "root was not let in: {as_root:#?}");
    umount();
    // A server whose volume is the user's from the start.
    let options = ["--owner", &format!("{USER}:{USER}")];
    let given = world.server_with("given", &options);
    mount(&given.invite());
    shell(&format!("cd {work} && echo text > file && mkdir d")).succeeds();
    umount();
    // A volume of the user's own.
    let (data, owner) = (text(&server.data), format!("{USER}:{USER}"));
    let create = ["volume", "create", "--data", &data, "--owner", &owner, "own"];
    run(&mut world.farfs(&create)).succeeds();
    mount(&server.invite_to("own", &[]));
    let line = format!("cd {work} && echo text > file && mkdir d && mv file d/ && cat d/file");
    assert_eq!(shell(&line).succeeds(), "text\n");
    shell(&format!("{farfs} wait {work}")).succeeds();
    let refused = shell(&format!("{farfs} mount --allow-other '{}' {work}", server.invite()));
    assert!(refused.code != Some(0) && refused.err.contains("mounted"), "{refused:#?}");
    umount();
    assert_eq!(shell(&format!("ls {work}")).succeeds(), "");
}

/// The program and its helper, as `make install` puts them side by side.
fn installed(world: &World) -> PathBuf {
    let folder = world.folder("bin");
    for name in ["farfs", "farfs-lend"] {
        fs::copy(program().with_file_name(name), folder.join(name)).unwrap();
    }
    folder
}

#[test]
fn what_an_ordinary_user_has_in_the_cache_the_kernel_reads_where_an_administrator_lets_it() {
    let world = World::new();
    let options = ["--owner", &format!("{USER}:{USER}")];
    let server: Server = world.server_with("server", &options);
    let machine = Machine::new(&world);
    let home = Machine::home(&world);
    let shell = |line: &str| machine.shell(&home, line);
    let on = run(Command::new("stat").args(["-f", "-c", "%T", &text(&home)])).succeeds();
    if !["ext2/ext3", "xfs", "btrfs", "f2fs"].contains(&on.trim()) {
        println!("not run: {} lies on {on}, from which nothing is lent", home.display());
        return;
    }
    let bin = installed(&world);
    let (farfs, work) = (text(&bin.join("farfs")), text(&home.join("work")));
    let noise_there = world.path("noise");
    fs::write(&noise_there, noise(1, 17 << 20)).unwrap();
    shell(&format!("{farfs} mount '{}' {work}", server.invite())).succeeds();
    shell(&format!("cp {} {work}/large && {farfs} wait {work}", text(&noise_there))).succeeds();
    let status = shell(&format!("{farfs} status {work}")).succeeds();
    let hint = format!("setcap cap_sys_admin+ep {}", text(&bin.join("farfs-lend")));
    assert!(status.contains(&hint), "{status}");
    shell(&format!("{farfs} umount {work}")).succeeds();

    rustix::fs::setxattr(
        bin.join("farfs-lend"),
        "security.capability",
        &CAPABILITY,
        XattrFlags::empty(),
    )
    .unwrap();
    shell(&format!("{farfs} mount {work}")).succeeds();
    let status = shell(&format!("exec 3<{work}/large; {farfs} status --json {work}")).succeeds();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["passthrough"]["files"], 1, "{status}");
    // While the daemon stands still the kernel reads it all the same.
    let daemon = status["pid"].as_u64().unwrap();
    let stopped = format!(
        "exec 3<{work}/large; kill -STOP {daemon}
         timeout 20 dd bs=1M count=17 status=none <&3 | cmp - {}
         said=$?; kill -CONT {daemon}; exit $said",
        text(&noise_there)
    );
    shell(&stopped).succeeds();
    // What is written by the kernel is the file's.
    shell(&format!("printf changed | dd of={work}/large conv=notrunc status=none")).succeeds();
    shell(&format!("head -c 7 {work}/large | grep -qx changed && {farfs} wait {work}")).succeeds();

    // A helper that somebody has ended is started again.
    let helper = helper_of(daemon);
    shell(&format!("kill -9 {helper}")).succeeds();
    eventually(10 * SECOND, "the helper ends", || has_ended(helper));
    let status = shell(&format!("exec 3<{work}/large; {farfs} status --json {work}")).succeeds();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["passthrough"]["files"], 1, "{status}");

    // With the daemon its helper ends, and the mount.
    let helper = helper_of(daemon);
    shell(&format!("kill -9 {daemon}")).succeeds();
    eventually(10 * SECOND, "the helper ends with the daemon", || has_ended(helper));
    let dead = shell(&format!("ls {work}"));
    assert!(dead.err.contains("not connected"), "{dead:#?}");
    shell(&format!("fusermount3 -u {work}")).succeeds();
}

/// The process that the daemon has started.
fn helper_of(daemon: u64) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{daemon}/task")).unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let started: String = tasks.filter_map(|task| of(task.ok()?)).collect();
    started.trim().parse().unwrap_or_else(|_| panic!("the helper is its one child, not {started}"))
}
