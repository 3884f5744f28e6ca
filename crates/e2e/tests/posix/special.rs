//! What is neither file nor directory, and programs that are run from the volume.

use crate::raw::Mapping;
use crate::{errno, in_both_modes, opened};
use e2e::mount::Wanted;
use e2e::{World, run};
use rustix::fs::{CWD, FileType, makedev, mkfifoat, mknodat};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

#[test]
fn a_pipe_with_a_name_carries_bytes() {
    in_both_modes(|mount| {
        let path = mount.path("pipe");
        mkfifoat(CWD, &path, 0o644.into()).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        std::thread::scope(|scope| {
            scope.spawn(|| fs::write(&path, "through the pipe").unwrap());
            assert_eq!(fs::read(&path).unwrap(), b"through the pipe");
        });
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_socket_with_a_name_can_be_connected_to() {
    in_both_modes(|mount| {
        // A socket's whole path may have 107 bytes only.
        let short = std::env::temp_dir().join(format!("farfs-s-{}", std::process::id()));
        let _ = fs::remove_file(&short);
        std::os::unix::fs::symlink(&mount.mountpoint, &short).unwrap();
        let path = short.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut said = String::new();
        listener.accept().unwrap().0.read_to_string(&mut said).unwrap();
        assert_eq!(said, "hello");
        fs::remove_file(&path).unwrap();
        fs::remove_file(&short).unwrap();
    });
}

#[test]
fn a_device_keeps_its_numbers_and_is_dead_here() {
    in_both_modes(|mount| {
        let path = mount.path("null");
        mknodat(CWD, &path, FileType::CharacterDevice, 0o666.into(), makedev(1, 3)).unwrap();
        let stat = fs::metadata(&path).unwrap();
        assert!(stat.file_type().is_char_device());
        assert_eq!(stat.rdev(), makedev(1, 3));
    });
}

#[test]
fn set_user_id_programs_and_devices_count_if_root_asked_for_it() {
    use crate::permissions::{NOBODY, as_user};
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "10s", "--allow-other", "-o"][..];
    let with = |words| [options, &[words]].concat();
    let first = with("rw");
    let wanted = Wanted { mode: "connected", options: &first, ..Wanted::default() };
    let mut mount = world.mount_with(&server, "mount", wanted);
    let (program, null) = (mount.path("program"), mount.path("null"));
    fs::copy("/usr/bin/id", &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    mknodat(CWD, &null, FileType::CharacterDevice, 0o666.into(), makedev(1, 3)).unwrap();
    fs::set_permissions(&null, Permissions::from_mode(0o666)).unwrap();
    let cases = [
        ("rw", false, false),
        ("nosuid,nodev", false, false),
        ("suid", true, false),
        ("dev", false, true),
        ("suid,dev", true, true),
        ("suid,dev,nosuid,nodev", false, false),
        ("suid,dev,user,exec", false, false),
    ];
    for (words, suid, dev) in cases {
        mount.unmount(&[]);
        mount.set_options(&with(words));
        mount.again();
        let user = as_user(NOBODY, &mount.mountpoint, "./program -u").succeeds();
        assert_eq!(user.trim() == "0", suid, "{words}: {user}");
        let opened = fs::read(&null).map_err(|error| Errno::from_io_error(&error));
        let expected = if dev { Ok(vec![]) } else { Err(Some(Errno::ACCESS)) };
        assert_eq!(opened, expected, "{words}");
    }
    // Who is not root is refused, and told why, before anything is mounted.
    let farfs = e2e::world::farfs(&[]).get_program().to_owned();
    let copy = std::env::temp_dir().join(format!("farfs-suid-{}", std::process::id()));
    fs::copy(farfs, &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    for word in ["suid", "dev"] {
        let line =
            format!("{} mount -o {word} farfs://localhost:1/main?key=k /tmp", copy.display());
        let said = as_user(NOBODY, Path::new("/"), &line).fails_with(2);
        assert!(said.contains(&format!("only root may mount with the option {word}")), "{said}");
    }
    fs::remove_file(&copy).unwrap();
}

#[test]
fn who_writes_to_a_set_user_id_program_does_not_run_it_as_its_owner_any_more() {
    use crate::permissions::{NOBODY, as_user};
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "10s", "--allow-other", "-o", "suid"][..];
    for mode in ["connected", "partial"] {
        let wanted = Wanted { mode, options, ..Wanted::default() };
        let mount = world.mount_with(&server, mode, wanted);
        let program = mount.path(mode);
        fs::copy("/usr/bin/id", &program).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4777)).unwrap();
        let line = format!("./{mode} -u && printf x >> {mode} && ./{mode} -u");
        let said = as_user(NOBODY, &mount.mountpoint, &line).succeeds();
        let who: Vec<_> = said.split_whitespace().collect();
        assert_eq!(who, ["0", &NOBODY.to_string()], "{mode}");
    }
}

#[test]
fn programs_run_from_the_volume() {
    in_both_modes(|mount| {
        let (program, script) = (mount.path("program"), mount.path("script"));
        fs::copy("/bin/echo", &program).unwrap();
        fs::write(&script, "#!/bin/sh\necho from \"$1\"\n").unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(run(Command::new(&program).arg("hello")).succeeds(), "hello\n");
        assert_eq!(run(Command::new(&script).arg("here")).succeeds(), "from here\n");
        assert_eq!(
            run(Command::new("sh").arg("-c").arg("./script x").current_dir(&mount.mountpoint))
                .succeeds(),
            "from x\n"
        );
    });
}

#[test]
fn a_file_that_is_made_without_a_name_is_given_one_or_is_gone() {
    in_both_modes(|mount| {
        use rustix::fs::{AtFlags, OFlags, linkat};
        use std::os::fd::AsRawFd;
        let open = |more| opened(&mount.mountpoint, OFlags::TMPFILE | OFlags::RDWR | more);
        let give = |file: &fs::File, name: &str| {
            let open = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, open, CWD, mount.path(name), AtFlags::SYMLINK_FOLLOW)
        };
        let mut file = fs::File::from(open(OFlags::empty()).unwrap());
        file.write_all(b"what it holds").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        // It can be locked and mapped like any other.
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let number = file.metadata().unwrap().ino();
        assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
        give(&file, "name").unwrap();
        assert_eq!(give(&file, "name"), Err(Errno::EXIST));
        give(&file, "other").unwrap();
        let found = fs::metadata(mount.path("name")).unwrap();
        assert_eq!((found.ino(), found.nlink(), found.len()), (number, 2, 13));
        let secret = fs::File::from(open(OFlags::EXCL).unwrap());
        assert_eq!(give(&secret, "secret"), Err(Errno::NOENT));
        assert_eq!(open(OFlags::CREATE).unwrap_err(), Errno::INVAL);
        // Through memory that is shared.
        let mapped = fs::File::from(open(OFlags::empty()).unwrap());
        mapped.set_len(4096).unwrap();
        let mapping = Mapping::shared(&mapped, 4096);
        mapping.write(0, &[7; 4096]);
        give(&mapped, "mapped").unwrap();
        assert_eq!(fs::metadata(mount.path("mapped")).unwrap().len(), 4096);
        drop(mapping);
        assert_eq!(fs::read(mount.path("mapped")).unwrap(), [7; 4096]);
        drop(mapped);
        assert_eq!(fs::read(mount.path("mapped")).unwrap(), [7; 4096]);
        let gone = errno(fs::metadata(mount.path("secret")));
        assert_eq!(gone, Errno::NOENT);
    });
}

#[test]
fn what_is_not_done_here_is_refused_by_its_errno() {
    in_both_modes(|mount| {
        use rustix::fs::{
            CWD, FallocateFlags, RenameFlags, fallocate, ioctl_ficlone, renameat_with,
        };
        let path = mount.path("file");
        std::fs::write(&path, [1; 16_384]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(fallocate(&file, flags, 4096, 4096), Err(Errno::OPNOTSUPP));
        }
        let other = mount.path("other");
        let flags = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
        assert_eq!(renameat_with(CWD, &path, CWD, &path, flags), Err(Errno::INVAL));
        let copy = std::fs::File::create(&other).unwrap();
        assert_eq!(ioctl_ficlone(&copy, &file), Err(Errno::OPNOTSUPP));
        assert_eq!(std::fs::read(&path).unwrap(), [1; 16_384]);
    });
}
